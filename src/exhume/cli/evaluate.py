"""``exhume evaluate``: compare results with the training data and with held-out data."""

from pathlib import Path
from typing import Annotated

import typer

from exhume.cli import options
from exhume.cli.command import command
from exhume.cli.console import CommandConsole
from exhume.core.errors import RecordError


@command()
def evaluate_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder that 'exhume attack' wrote to.")],
    *,
    data: options.CompareOption = None,
    out: options.OptionalOut = None,
    seed: Annotated[
        int, typer.Option("--seed", help="Unused, because nothing here is random; every command takes it.")
    ] = 0,
    device: options.DeviceOption = "auto",
    console: CommandConsole,
) -> None:
    """Compare the results of attacks in a run with its data and with held-out data; write figures and a report."""
    from exhume.auditing import audit_to_json
    from exhume.auditing.run_folder import RunFolder
    from exhume.cli.pipeline import load_comparison, name_attack, write_audit
    from exhume.cli.summaries import print_audit, print_files
    from exhume.core.devices import resolve_device
    from exhume.evaluation import evaluate
    from exhume.records import Audit

    folder = RunFolder(run)
    found = folder.reconstructions()
    if not found:
        raise RecordError(
            f"{run} holds no reconstruction ({folder.reconstruction.name}); run 'exhume attack {run}' first."
        )
    view = folder.load_victim().view().to(resolve_device(device)) if folder.victim.exists() else None
    examples = folder.load_data() if data is None else load_comparison(data)
    audited = Audit(
        evaluations={
            name or name_attack(place, found): evaluate(place.load_reconstruction(), examples, victim=view)
            for name, place in found.items()
        }
    )
    target = RunFolder(out or run)
    write_audit(target, audited)
    print_audit(console, audited)
    print_files(console, target, audited)
    console.print_json(audit_to_json(audited))
