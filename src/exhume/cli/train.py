"""``exhume train``: a network whose initial weights, final weights and data are known."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from exhume.cli import options
from exhume.cli.command import command, select_fields
from exhume.cli.console import CommandConsole
from exhume.core.errors import ExhumeError
from exhume.models import MLP, ConvNet, ResNet
from exhume.models.architecture import Architecture
from exhume.training.settings import Training


@command(network=(options.MODEL, (MLP, ConvNet)), training=(options.TRAINING, (Training,)))
def train_command(
    *,
    data: options.SourceOption,
    selection: options.Selection,
    test: options.TestOption = None,
    architecture: Annotated[
        Literal["mlp", "convnet", "resnet"], typer.Option(help="Kind of network.", rich_help_panel=options.MODEL)
    ] = "mlp",
    blocks: Annotated[
        str, typer.Option(help="Residual blocks per stage of a resnet.", rich_help_panel=options.MODEL)
    ] = "2,2,2,2",
    network: dict[str, Any],
    training: dict[str, Any],
    overwrite: Annotated[bool, options.flag("--overwrite", "Replace another network in --out.")] = False,
    out: options.OutOption = Path("out/run"),
    seed: options.SeedOption = 0,
    device: options.DeviceOption = "auto",
    console: CommandConsole,
) -> None:
    """Train a network on known data, and keep its weights before and after training.

    If interrupted, the same command continues; if finished, it loads the result.
    """
    from exhume.auditing.run_folder import RunFolder
    from exhume.cli.pipeline import TrainingRequest, train_into, training_to_json
    from exhume.cli.summaries import print_training

    model: Architecture
    if architecture == "mlp":
        model = MLP(**select_fields(MLP, network))
    elif architecture == "convnet":
        model = ConvNet(**select_fields(ConvNet, network | {"bias": network["bias"] != "none"}))
    else:
        model = ResNet(channels=network["channels"], blocks=_parse_blocks(blocks))
    request = TrainingRequest(
        data={"name": data, **vars(selection), "test": test, "seed": seed},
        model=model,
        training=training | {"seed": seed},
    )
    folder = RunFolder(out)
    drawn, victim = train_into(folder, request, device=device, console=console, overwrite=overwrite)
    console.print_json(training_to_json(request, drawn, victim))
    print_training(console, drawn, victim)
    console.print(f"Next: exhume audit {folder.path}")


def _parse_blocks(text: str) -> tuple[int, ...]:
    """Read the number of residual blocks of each stage, such as ``2,2,2,2``."""
    if not all(part.strip().isdecimal() for part in text.split(",")):
        raise ExhumeError(f"--blocks takes whole numbers such as 2,2,2,2, not {text!r}.")
    return tuple(int(part) for part in text.split(","))
