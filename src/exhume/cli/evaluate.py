"""``exhume evaluate``: what was found, beside the data and beside its null."""

from pathlib import Path
from typing import Annotated

import typer

from exhume.cli import options
from exhume.cli.pipeline import audit_into, load_comparison
from exhume.cli.run_folder import RunFolder
from exhume.cli.telling import one_or_all, tell_audit, tell_place
from exhume.cli.voice import speaking
from exhume.devices import resolve_device
from exhume.errors import RecordError


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
    with speaking(as_json=as_json, quiet=quiet, debug=debug) as voice:
        folder = RunFolder(run)
        found = folder.reconstructions()
        if not found:
            raise RecordError(
                f"{run} holds no reconstruction ({folder.reconstruction.name}); run 'exhume attack {run}' first."
            )
        view = folder.load_victim().view().to(resolve_device(device)) if folder.victim.exists() else None
        examples = folder.load_data() if data is None else load_comparison(data, view)
        audits = {}
        for name, place in found.items():
            target = RunFolder(place.path if out is None else out / name)
            audits[name] = audit_into(target, place.load_reconstruction(), examples, view, voice)
            tell_audit(voice, audits[name])
            tell_place(voice, target)
        voice.give(one_or_all({name: audit.to_json() for name, audit in audits.items()}))
