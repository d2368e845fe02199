"""Options that several commands share, each explained once."""

from pathlib import Path
from typing import Annotated, Literal

import typer

Device = Literal["auto", "cpu", "cuda"]
Preset = Literal["smoke", "cpu", "gpu", "paper"]
"""As in :mod:`exhume.studies`, which takes seconds to import."""

OptionalRun = Annotated[
    Path | None,
    typer.Argument(metavar="RUN", help="A folder that 'exhume train' wrote; or give your own weights with --model."),
]
OutOption = Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to write to.")]
OptionalOut = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="The folder to write to.", show_default="RUN")
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, max=2**63 - 1, help="Fixes every random choice.")]
DeviceOption = Annotated[Device, typer.Option("--device", help="Where to compute; auto takes a GPU when there is one.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output, nothing else.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show where an error came from.")]

DATA, MODEL, TRAINING, OWN = "Data", "Network", "Training", "Your own weights"
"""The panels that group options in the help."""

ClassesOption = Annotated[
    str | None,
    typer.Option(
        "--classes", help="all, odd-even, animal-vehicle, 'cat,dog' or 'pet=cat,dog; farm=horse'.",
        rich_help_panel=DATA, show_default="all",
    ),
]  # fmt: skip
SizeOption = Annotated[
    int | None,
    typer.Option(
        "--size", min=1, help="Training examples in total.", rich_help_panel=DATA, show_default="the most there are"
    ),
]
TestOption = Annotated[int | None, typer.Option("--test", min=0, help="Test examples; 0: none.", rich_help_panel=DATA)]
LabelOption = Annotated[
    str | None, typer.Option("--label", help="The column of a CSV file that holds the classes.", rich_help_panel=DATA)
]
DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", metavar="DIR", help="Where files of known sources lie, before EXHUME_DATA and the cache.",
        rich_help_panel=DATA,
    ),
]  # fmt: skip
CentreOption = Annotated[
    bool, typer.Option("--centre/--no-centre", help="Subtract the training mean of images.", rich_help_panel=DATA)
]

AttackOption = Annotated[
    list[str] | None,
    typer.Option(
        "--attack", "--attacks", metavar="NAME",
        help="An attack, such as gate-certificate or weight-difference; repeat for more, or put commas between.",
        show_default="the strongest that applies",
    ),
]  # fmt: skip
AuditAttackOption = Annotated[
    list[str] | None,
    typer.Option(
        "--attack", "--attacks", metavar="NAME",
        help="Attacks by name, or auto: all that apply, the cheapest first, within --budget.", show_default="auto",
    ),
]  # fmt: skip
BudgetOption = Annotated[
    float | None,
    typer.Option(
        "--budget", min=0, metavar="MINUTES", help="For all attacks together.",
        show_default="10 for auto, no limit for attacks by name",
    ),
]  # fmt: skip
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE",
        help="A setting of the attack, such as steps=2000; of several attacks, ATTACK.steps=2000.",
    ),
]  # fmt: skip
RestartsOption = Annotated[
    int,
    typer.Option(
        "--restarts", metavar="N", min=1,
        help="Attack from so many starts and keep the best by the attack's own measure; on a GPU weight-difference "
        "runs them in one program.",
    ),
]  # fmt: skip
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model", metavar="MODULE:FACTORY", rich_help_panel=OWN,
        help="A function without arguments that returns the nn.Module: package.module:factory or file.py:factory. "
        "It is imported, so name only code you trust.",
    ),
]  # fmt: skip
InitialOption = Annotated[
    list[str] | None,
    typer.Option(
        "--initial", metavar="FILE|seed:A-B", rich_help_panel=OWN,
        help="The weights before training; or seeds to search, seed:0-9999; repeated, public checkpoints to search.",
    ),
]  # fmt: skip
TrainedWithOption = Annotated[
    list[str] | None,
    typer.Option(
        "--trained-with", metavar="NAME=VALUE", rich_help_panel=OWN,
        help="What is publicly known of the training: optimiser=adam, loss=mse (huber, bce, ce), weight_decay=1e-3, "
        "augmentation=true.",
    ),
]  # fmt: skip
FinalOption = Annotated[
    Path | None, typer.Option("--final", metavar="FILE", help="The released weights.", rich_help_panel=OWN)
]
ShapeOption = Annotated[
    str | None,
    typer.Option("--input-shape", metavar="C,H,W", help="The shape of one input: 1,28,28.", rich_help_panel=OWN),
]
BoundsOption = Annotated[
    str | None,
    typer.Option(
        "--bounds", metavar="LOW,HIGH", help="The range of an input value, or none.", rich_help_panel=OWN,
        show_default="0,1 for images, none for rows of a table",
    ),
]  # fmt: skip
OffsetOption = Annotated[
    str | None,
    typer.Option(
        "--offset", metavar="MEAN[,...]", rich_help_panel=OWN,
        help="What users subtract from an input first: one number, or one a channel.",
    ),
]  # fmt: skip
CompareOption = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="PATH", show_default="RUN",
        help="Compare with these examples: a run folder, or a Dataset saved from Python.",
    ),
]  # fmt: skip
TrainDataOption = Annotated[
    Path | None,
    typer.Option(
        "--train-data", metavar="FILE.npz", rich_help_panel=OWN,
        help="What the model was trained on: arrays x (in the units the model takes) and y.",
    ),
]  # fmt: skip
HoldoutOption = Annotated[
    Path | None,
    typer.Option(
        "--holdout", metavar="FILE.npz", rich_help_panel=OWN,
        help="Examples of the same kind that it was not trained on, the null of every score.",
    ),
]  # fmt: skip

PIPELINE = "For pipelines"
FailIfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-if", metavar="CONDITION", rich_help_panel=PIPELINE,
        help="Exit with 1 if any attack meets this, such as 'certified>0' or 'finding>=traces'; repeat for more.",
    ),
]  # fmt: skip
JunitOption = Annotated[
    Path | None,
    typer.Option("--junit", metavar="FILE", rich_help_panel=PIPELINE, help="Write the result as JUnit XML too."),
]
