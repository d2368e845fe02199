"""``exhume reproduce``: the measurements of the papers and our own, one command each."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from exhume.cli import options
from exhume.cli.console import open_console
from exhume.core.errors import ExhumeError

SHARED = "shared-cells"
"""The folder beside the studies for what several of them measure: run together, figures share their networks."""


def reproduce_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME...", help="Studies to run (fig2, table1, paper, all); none lists them."),
    ] = None,
    *,
    preset: Annotated[
        options.Preset,
        typer.Option(
            "--preset", help="How much of a study to run: seconds, minutes, minutes on a GPU, or what the paper did."
        ),
    ] = "cpu",
    out: options.OutOption = Path("out/reproduce"),
    seed: options.SeedOption = 0,
    device: options.DeviceOption = "auto",
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    debug: options.DebugOption = False,
) -> None:
    """Repeat a measurement; leaves JSON and figures in a sub-folder of its own.

    Interrupted, the same command continues with the first cell that is not there yet. A study has no --budget: it
    measures all that its --preset holds. Of several studies, one that cannot run (its data are not here, say) keeps no
    other from running.
    """
    from exhume.auditing.run_folder import RunFolder
    from exhume.studies import STUDIES, choose_studies

    with open_console(as_json=as_json, quiet=quiet, debug=debug) as console:
        studies = choose_studies(names or (), STUDIES)
        if not names:
            descriptions = {name: STUDIES.describe(name) for name in STUDIES}
            console.print_table(("study", "shows"), list(descriptions.items()))
            console.print_json(descriptions)
            return

        from exhume.studies.study import read_result  # takes seconds to import

        if preset == "smoke":
            console.note("The preset smoke shows that studies run; its numbers mean nothing.")
        results, reasons = {}, {}
        for name in studies:
            place = out / name
            wanted = ["--preset", preset, "--seed", str(seed), "--device", device, "--out", str(out)]
            command = shlex.join(["exhume", "reproduce", name, *wanted])
            # Some cells lie beside the study: it is the whole folder that is kept when Ctrl-C stops it.
            try:
                with RunFolder(place).open(), console.progress(out) as progress:
                    found = STUDIES[name].run(
                        preset, place, device=device, seed=seed, progress=progress, command=command, shared=out / SHARED
                    )
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
            said = " ".join(f"{name}: {reason}" for name, reason in reasons.items())
            raise ExhumeError(f"{len(reasons)} of {len(studies)} studies could not run. {said}")
