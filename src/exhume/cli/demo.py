"""``exhume demo``: train on faces and recover them, in a minute."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from exhume.cli import options
from exhume.cli.command import command
from exhume.cli.console import CommandConsole
from exhume.cli.invocation import format_invocation
from exhume.models.mlp import MLP

FACES = 40
"""Number of training images; half of them show faces."""
TRAININGS: dict[str, dict[str, Any]] = {
    "weights": {"stop_loss": 1e-6},
    "checkpoint": {
        "optimiser": "adamw", "lr": 1e-4, "batch_size": 10, "stop_loss": 1e-3, "keep_optimiser_state": True,
    },
}  # fmt: skip
"""How the network is trained, for each kind of evidence."""


@command()
def demo(
    *,
    evidence: Annotated[
        Literal["weights", "checkpoint"],
        typer.Option(
            help="What the attacker holds: the initial and final weights of a training with SGD, or a training "
            "checkpoint with AdamW's state and no initial weights."
        ),
    ] = "weights",
    out: options.OutOption = Path("out/demo"),
    seed: options.SeedOption = 0,
    device: options.DeviceOption = "auto",
    console: CommandConsole,
) -> None:
    """Train a face classifier on bundled photographs, then recover the photographs from what the training leaves."""
    from exhume.auditing import audit_to_json
    from exhume.auditing.orchestrator import run_audit
    from exhume.auditing.run_folder import RunFolder
    from exhume.cli.pipeline import TrainingRequest, choose_attacks, train_into, write_audit
    from exhume.cli.summaries import print_audit, print_files, print_training

    folder = RunFolder(out)
    request = TrainingRequest(
        data={"name": "faces", "size": FACES, "seed": seed},
        model=MLP(width=1024, depth=2),
        training={"seed": seed, **TRAININGS[evidence]},
    )
    data, victim = train_into(folder, request, device=device, console=console, overwrite=True)
    print_training(console, data, victim)
    view = victim.view() if evidence == "weights" else replace(victim.view(), initial=None)
    audited = run_audit(
        view,
        data,
        choose_attacks(view, None, None, console),
        is_auto=False,
        budget=None,
        seed=seed,
        device=device,
        observer=console,
        folder=folder,
        start=None,
        with_prices=False,
        notes={"command": format_invocation(), "model": "a face classifier"},
    )
    write_audit(folder, audited)
    print_audit(console, audited)
    print_files(console, folder, audited)
    console.print_json(audit_to_json(audited))
