"""``exhume demo``: train on faces and recover them, in a minute."""

from pathlib import Path

from exhume.cli import options
from exhume.cli.command import command
from exhume.cli.console import CommandConsole
from exhume.models.mlp import MLP

FACES = 40
"""Number of training images; half of them show faces."""


@command()
def demo(
    *,
    out: options.OutOption = Path("out/demo"),
    seed: options.SeedOption = 0,
    device: options.DeviceOption = "auto",
    console: CommandConsole,
) -> None:
    """Train a face detector on bundled photographs, then recover the photographs from its weights."""
    from exhume.auditing import audit_to_json
    from exhume.auditing.run_folder import RunFolder
    from exhume.cli.pipeline import TrainingRequest, attack_into, choose_attacks, train_into, write_audit
    from exhume.cli.summaries import print_audit, print_files, print_training
    from exhume.evaluation import evaluate
    from exhume.records import Audit

    folder = RunFolder(out)
    request = TrainingRequest(
        data={"name": "faces", "size": FACES, "seed": seed},
        model=MLP(width=1024, depth=2),
        training={"seed": seed, "stop_loss": 1e-6},
    )
    data, victim = train_into(folder, request, device=device, console=console, overwrite=True)
    print_training(console, data, victim)
    view = victim.view()
    attacks = choose_attacks(view, None, None, console)
    found = attack_into(folder, view, attacks, seed=seed, device=device, console=console)
    audited = Audit(evaluations={name: evaluate(one, data, victim=view) for name, (_, one) in found.items()})
    write_audit(folder, audited)
    print_audit(console, audited)
    print_files(console, folder, audited)
    console.print_json(audit_to_json(audited))
