"""``exhume sweep``: run commands over a grid of settings and seeds, on this machine or on a cluster."""

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from exhume.cli.command import command
from exhume.cli.console import CommandConsole
from exhume.cli.invocation import format_invocation
from exhume.cli.options import flag
from exhume.core.errors import ExhumeError
from exhume.core.text import count_noun

EngineName = Literal["local", "ray"]

SOME_FAILED = 1
"""Exit code: some tasks failed."""
FAILURES_SHOWN = 5
"""Largest number of failures printed; the table has all of them."""


@command()
def sweep_command(
    file: Annotated[Path, typer.Argument(metavar="SWEEP.toml", help="Commands, options, a grid and seeds.")],
    *,
    engine: Annotated[
        EngineName,
        typer.Option("--engine", help="local: one task at a time; ray: tasks in parallel, on one machine or several."),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            metavar="HOST:PORT",
            help="A running Ray cluster, or auto; by default Ray starts here.",
        ),
    ] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Check the file and print what would run.")] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="The folder to write to.", show_default="out/sweep/FILE"),
    ] = None,
    console: CommandConsole,
) -> None:
    """Run commands over a grid of settings and seeds, and collect the results in one table and one page.

    Exits with 0, with 1 if tasks failed (the table gives the reasons), with 2 on bad input. If interrupted, the same
    command continues with the unfinished tasks.
    """
    from exhume.cli.sweep_jobs import make_job
    from exhume.sweeps import LocalEngine, RayEngine, read_sweep, run_sweep

    if address is not None and engine != "ray":
        raise ExhumeError("--address goes with --engine ray.")
    plan = read_sweep(file)
    place = out or Path("out/sweep") / file.stem
    jobs = [make_job(task, place.absolute()) for task in plan.tasks()]
    console.note(f"{count_noun(len(jobs), 'task')}: {', then '.join(plan.commands)}")
    if dry_run:
        for job in jobs:
            console.print(" && ".join(shlex.join(("exhume", *line)) for line in job.lines))
        console.print_json({"tasks": len(jobs), "lines": [list(map(list, job.lines)) for job in jobs]})
        return
    chosen = (
        LocalEngine()
        if engine == "local"
        else RayEngine(address=address, resources=plan.resources, log=place / "ray.log", report=console.note)
    )
    try:
        with console.progress() as progress:
            result = run_sweep(
                plan, jobs, chosen, place, title=file.stem, command=format_invocation(), progress=progress
            )
    except KeyboardInterrupt:
        console.note(f"Interrupted; {place} keeps the finished tasks, and the same command continues.")
        raise
    earlier = f", {result.found} of them by an earlier call" if result.found else ""
    done, failed = len(result.records) - len(result.failed), len(result.failed)
    console.print(f"{done} of {result.tasks} tasks done{earlier}, {failed} failed.")
    for record in result.failed[:FAILURES_SHOWN]:
        console.print(f"{record.key} failed: {record.message}")
    if more := len(result.failed[FAILURES_SHOWN:]):
        console.print(f"{more} more failed; the table gives the reasons.")
    console.print(f"Page: {result.page}; table: {result.table}.")
    console.print_json(
        {
            "tasks": result.tasks,
            "done": done,
            "failed": {record.key: record.message for record in result.failed},
            "table": str(result.table),
            "page": str(result.page),
        }
    )
    if result.failed:
        raise typer.Exit(SOME_FAILED)
