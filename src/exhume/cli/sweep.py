"""``exhume sweep``: any command over a grid of settings and seeds, here or on a cluster."""

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from exhume.cli.command import command
from exhume.cli.console import CommandConsole
from exhume.cli.invocation import invocation
from exhume.cli.options import flag
from exhume.core.errors import ExhumeError

EngineName = Literal["local", "ray"]

SOME_FAILED = 1
"""The exit code of a sweep some of whose tasks failed."""
FAILURES_SHOWN = 5


@command()
def sweep_command(
    file: Annotated[Path, typer.Argument(metavar="SWEEP.toml", help="Commands, options, a grid and seeds.")],
    *,
    engine: Annotated[
        EngineName,
        typer.Option("--engine", help="local: one task after the other; ray: many at a time, on one machine or many."),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            "--address", metavar="HOST:PORT", help="A running Ray cluster, or auto; without it, Ray starts here."
        ),
    ] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Check the file and print what would run.")] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="The folder to write to.", show_default="out/sweep/FILE"),
    ] = None,
    console: CommandConsole,
) -> None:
    """Run commands over a grid of settings and seeds, and gather what they say in one table and one page.

    Exits with 0, with 1 if tasks failed (the table says why), with 2 on bad input. Killed or interrupted, the same
    command continues with the tasks that are not done.
    """
    from exhume.cli.sweep_jobs import make_job
    from exhume.sweeps import LocalEngine, RayEngine, read_sweep, run_sweep

    if address is not None and engine != "ray":
        raise ExhumeError("--address goes with --engine ray.")
    plan = read_sweep(file)
    place = out or Path("out/sweep") / file.stem
    jobs = [make_job(task, place.absolute()) for task in plan.tasks()]
    console.note(f"{len(jobs)} task{'s' * (len(jobs) != 1)} of {', then '.join(plan.commands)}")
    if dry_run:
        for job in jobs:
            console.print(" && ".join(shlex.join(("exhume", *line)) for line in job.lines))
        console.print_json({"tasks": len(jobs), "lines": [list(map(list, job.lines)) for job in jobs]})
        return
    chosen = (
        LocalEngine()
        if engine == "local"
        else RayEngine(address=address, resources=plan.resources, log=place / "ray.log", tell=console.note)
    )
    try:
        with console.progress() as progress:
            told = run_sweep(plan, jobs, chosen, place, title=file.stem, command=invocation(), progress=progress)
    except KeyboardInterrupt:
        console.note(f"Interrupted; {place} keeps what is done, and the same command continues.")
        raise
    again = f", {told.found} of them by an earlier call" if told.found else ""
    console.print(
        f"{len(told.records) - len(told.failed)} of {told.tasks} tasks done{again}, {len(told.failed)} failed."
    )
    for record in told.failed[:FAILURES_SHOWN]:
        console.print(f"{record.key} failed: {record.message}")
    if more := len(told.failed[FAILURES_SHOWN:]):
        console.print(f"{more} more failed; the table says why.")
    console.print(f"Open {told.page}; for machines, {told.table}.")
    console.print_json(
        {
            "tasks": told.tasks,
            "done": len(told.records) - len(told.failed),
            "failed": {record.key: record.message for record in told.failed},
            "table": str(told.table),
            "page": str(told.page),
        }
    )
    if told.failed:
        raise typer.Exit(SOME_FAILED)
