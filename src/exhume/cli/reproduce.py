"""``exhume reproduce``: the measurements of the papers and our own."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from exhume.cli import options
from exhume.cli.command import command
from exhume.cli.console import CommandConsole
from exhume.core.errors import ExhumeError
from exhume.studies.catalogue import STUDIES, Preset, choose_studies

SHARED = "shared-cells"
"""Folder of measurements that several studies share, so that studies run together share trained networks."""


@command()
def reproduce_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME...", help="Studies to run: fig2, table1, paper, all; without a name, list them."),
    ] = None,
    *,
    preset: Annotated[
        Preset,
        typer.Option("--preset", help="Size of a study: seconds, minutes, minutes on a GPU, or the size in the paper."),
    ] = "cpu",
    out: options.OutOption = Path("out/reproduce"),
    seed: options.SeedOption = 0,
    device: options.DeviceOption = "auto",
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            min=1,
            metavar="N",
            show_default="1; on a GPU as many as suit it",
            help="Processes that measure side by side, in the studies named max-margin.",
        ),
    ] = None,
    console: CommandConsole,
) -> None:
    """Repeat measurements; each study writes JSON and figures to its own sub-folder.

    If interrupted, the same command continues with the first missing cell. Studies have no time limit; --preset decides
    how much is measured. A study that cannot run, for example because its data are missing, does not stop the others.
    """
    studies = choose_studies(names or (), STUDIES)
    if not names:
        descriptions = {name: STUDIES.describe(name) for name in STUDIES}
        console.print_table(("study", "shows"), list(descriptions.items()))
        console.print_json(descriptions)
        return

    from exhume.auditing.run_folder import RunFolder  # takes seconds to import
    from exhume.studies.side_by_side import choose_jobs
    from exhume.studies.study import read_result

    if preset == "smoke":
        console.note("The preset smoke only checks that studies run; ignore its numbers.")
    jobs = choose_jobs(device) if jobs is None else jobs
    results, reasons = {}, {}
    for name in studies:
        place = out / name
        given = ["--preset", preset, "--seed", str(seed), "--device", device, "--out", str(out)]
        line = shlex.join(["exhume", "reproduce", name, *given])
        # Shared cells lie beside the study's folder, so an interrupted run keeps the whole of --out.
        try:
            with RunFolder(place).open(), console.progress(out) as progress:
                found = STUDIES[name].run(
                    preset, place, device=device, seed=seed, progress=progress, command=line,
                    shared=out / SHARED, jobs=jobs,
                )  # fmt: skip
        except ExhumeError as error:
            if len(studies) == 1:
                raise
            reasons[name] = str(error)
            continue
        console.print(f"{name}: {STUDIES[name].shows}")
        if found.table is not None:
            head, rows = found.table
            console.print_table(tuple(head), [tuple(row) for row in rows])
        if found.summary:
            console.print(found.summary)
        console.print(f"Figures and result.json are in {place}.")
        results[name] = read_result(place)
    if results:
        console.print_json(results)
    if reasons:
        listed = " ".join(f"{name}: {reason}" for name, reason in reasons.items())
        raise ExhumeError(f"{len(reasons)} of {len(studies)} studies could not run. {listed}")
