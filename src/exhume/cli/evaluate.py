"""``exhume evaluate``: what was found, beside the data and beside its null."""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from exhume.auditing import audit_to_json
from exhume.auditing.catalogue import dashed
from exhume.auditing.measuring import measured
from exhume.cli import options
from exhume.cli.console import open_console
from exhume.cli.pipeline import audit_into, load_comparison
from exhume.cli.run_folder import RunFolder
from exhume.cli.summaries import print_audit, print_files
from exhume.core.devices import resolve_device
from exhume.core.errors import RecordError
from exhume.records import Audit

ITSELF = "-in-run-folder"
"""Tells what lies in a run folder itself from what the same attack left in a sub-folder."""


def evaluate_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder that 'exhume attack' wrote to.")],
    *,
    data: options.CompareOption = None,
    out: options.OptionalOut = None,
    seed: Annotated[
        int, typer.Option("--seed", help="Nothing here is random; so that one set of options fits every command.")
    ] = 0,
    device: options.DeviceOption = "auto",
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    debug: options.DebugOption = False,
) -> None:
    """Measure what attacks found in a run against its data and against held-out data; write figures and a report."""
    with open_console(as_json=as_json, quiet=quiet, debug=debug) as console:
        folder = RunFolder(run)
        found = folder.reconstructions()
        if not found:
            raise RecordError(
                f"{run} holds no reconstruction ({folder.reconstruction.name}); run 'exhume attack {run}' first."
            )
        view = folder.load_victim().view().to(resolve_device(device)) if folder.victim.exists() else None
        examples = folder.load_data() if data is None else load_comparison(data, view)
        audited = Audit(
            evaluations={
                name or _name_of(place, found): measured(place.load_reconstruction(), examples, view)
                for name, place in found.items()
            }
        )
        target = RunFolder(out or run)
        audit_into(target, audited)
        print_audit(console, audited)
        print_files(console, target, audited)
        console.print_json(audit_to_json(audited))


def _name_of(place: RunFolder, taken: Collection[str]) -> str:
    """Return the name of the attack that wrote to the run folder itself, from how the attack describes itself.

    Restarts go by the name of what was restarted. What the same attack left in a sub-folder of its name is another
    result (by ``exhume audit``, say), and both stay.
    """
    described = place.load_reconstruction().attack.removeprefix("Restarted(attack=")
    name = dashed(described.partition("(")[0]) or "attack"
    return f"{name}{ITSELF}" if name in taken else name
