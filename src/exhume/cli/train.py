"""``exhume train``: a victim whose start, end and data are known."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from exhume.cli import options
from exhume.cli.console import open_console
from exhume.cli.options import DATA, MODEL, TRAINING
from exhume.models.architecture import Architecture
from exhume.models.convnet import ConvNet
from exhume.models.mlp import MLP, Activation, Bias, Parameterisation
from exhume.training.settings import LossName, Optimiser, Precision, Schedule


def train_command(
    *,
    data: Annotated[
        str,
        typer.Option(
            "--data",
            help="A known source, an .npz or .csv file, a folder of images, or what 'exhume distil' left.",
            rich_help_panel=DATA,
        ),
    ],
    classes: options.ClassesOption = None,
    size: options.SizeOption = None,
    test: options.TestOption = None,
    label: options.LabelOption = None,
    centre: options.CentreOption = True,
    data_dir: options.DataDirOption = None,
    architecture: Annotated[
        Literal["mlp", "convnet"], typer.Option(help="The kind of network.", rich_help_panel=MODEL)
    ] = "mlp",
    width: Annotated[int, typer.Option(min=1, help="Units a layer of an MLP.", rich_help_panel=MODEL)] = 1024,
    channels: Annotated[int, typer.Option(min=1, help="Channels a layer of a convnet.", rich_help_panel=MODEL)] = 32,
    depth: Annotated[int, typer.Option(min=0, help="Hidden layers.", rich_help_panel=MODEL)] = 2,
    activation: Annotated[Activation, typer.Option(help="Between layers.", rich_help_panel=MODEL)] = "relu",
    bias: Annotated[Bias, typer.Option(help="Which layers have one.", rich_help_panel=MODEL)] = "all",
    parameterisation: Annotated[
        Parameterisation, typer.Option(help="How weights of an MLP are drawn and scaled.", rich_help_panel=MODEL)
    ] = "standard",
    loss: Annotated[LossName, typer.Option(help="What to minimise.", rich_help_panel=TRAINING)] = "mse",
    optimiser: Annotated[Optimiser, typer.Option(help="How.", rich_help_panel=TRAINING)] = "sgd",
    schedule: Annotated[
        Schedule, typer.Option(help="What decides on settings not given.", rich_help_panel=TRAINING)
    ] = "fast",
    lr: Annotated[float | None, typer.Option(help="Learning rate.", rich_help_panel=TRAINING)] = None,
    momentum: Annotated[
        float | None, typer.Option(help="Of SGD; for Adam its first decay.", rich_help_panel=TRAINING)
    ] = None,
    momentum_rise: Annotated[
        int | None, typer.Option(help="How slowly the momentum rises; 0: constant.", rich_help_panel=TRAINING)
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Examples a step.", show_default="all", rich_help_panel=TRAINING)
    ] = None,
    weight_decay: Annotated[float, typer.Option(help="Coupled, as in PyTorch.", rich_help_panel=TRAINING)] = 0.0,
    steps: Annotated[int | None, typer.Option(help="At most so many steps.", rich_help_panel=TRAINING)] = None,
    epochs: Annotated[int | None, typer.Option(help="Or so many passes.", rich_help_panel=TRAINING)] = None,
    stop_loss: Annotated[float | None, typer.Option(help="Stop at this loss.", rich_help_panel=TRAINING)] = None,
    patience: Annotated[
        int | None, typer.Option(help="Stop after so many steps without progress.", rich_help_panel=TRAINING)
    ] = None,
    linearised: Annotated[
        bool, typer.Option("--linearised", help="Train the first-order expansion.", rich_help_panel=TRAINING)
    ] = False,
    precision: Annotated[Precision, typer.Option(help="Of weights and data.", rich_help_panel=TRAINING)] = "float32",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace another network in --out.")] = False,
    out: options.OutOption = Path("out/run"),
    seed: options.SeedOption = 0,
    device: options.DeviceOption = "auto",
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    debug: options.DebugOption = False,
) -> None:
    """Train a network on known data, and keep both ends of its training.

    Interrupted, the same command continues; finished, it finds what is there.
    """
    from exhume.auditing.run_folder import RunFolder
    from exhume.cli.pipeline import TrainingRequest, train_into, training_to_json
    from exhume.cli.summaries import print_training

    with open_console(as_json=as_json, quiet=quiet, debug=debug) as console:
        model: Architecture
        if architecture == "mlp":
            model = MLP(width=width, depth=depth, activation=activation, bias=bias, parameterisation=parameterisation)
        else:
            model = ConvNet(channels=channels, depth=depth, activation=activation, bias=bias != "none")
        request = TrainingRequest(
            data={
                "name": data,
                "classes": classes,
                "size": size,
                "test": test,
                "seed": seed,
                "centre": centre,
                "label": label,
                "data_dir": data_dir,
            },
            model=model,
            training={
                "loss": loss,
                "optimiser": optimiser,
                "schedule": schedule,
                "lr": lr,
                "momentum": momentum,
                "momentum_rise": momentum_rise,
                "batch_size": batch_size,
                "weight_decay": weight_decay,
                "steps": steps,
                "epochs": epochs,
                "stop_loss": stop_loss,
                "patience": patience,
                "linearised": linearised,
                "precision": precision,
                "seed": seed,
            },
        )
        folder = RunFolder(out)
        drawn, victim = train_into(folder, request, device=device, console=console, overwrite=overwrite)
        console.print_json(training_to_json(request, drawn, victim))
        print_training(console, drawn, victim)
        console.print(f"Next: exhume audit {folder.path}")
