"""Options that several commands share, each declared once.

An annotation holds the type, the names and the help of an option; a command states only the default. Dataclasses hold
options that always go together.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

Device = Literal["auto", "cpu", "cuda"]

LARGEST_SEED = 2**63 - 1
"""The largest seed that PyTorch accepts."""

DATA, MODEL, TRAINING, OWN, PIPELINE = "Data", "Network", "Training", "Your own weights", "For pipelines"
"""The panels that group options in the help."""
_data, _own, _pipeline = (partial(typer.Option, rich_help_panel=panel) for panel in (DATA, OWN, PIPELINE))


def flag(name: str, help: str) -> typer.models.OptionInfo:
    """Return an option without a value, and without a type in the help."""
    return typer.Option(name, help=help, metavar="")  # type: ignore[no-any-return] # typer's Option returns Any


def _check_seed(seed: int) -> int:
    if not 0 <= seed <= LARGEST_SEED:
        raise typer.BadParameter(f"{seed} is not in the range from 0 to 2⁶³ − 1.")
    return seed


OptionalRun = Annotated[
    Path | None,
    typer.Argument(metavar="RUN", help="A folder that 'exhume train' wrote; for your own weights use --model."),
]
OutOption = Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to write to.")]
OptionalOut = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="The folder to write to.", show_default="RUN")
]
SeedOption = Annotated[
    int, typer.Option("--seed", metavar="N", help="Seed of every random choice.", callback=_check_seed)
]
DeviceOption = Annotated[Device, typer.Option("--device", help="Where to compute; auto uses a GPU if there is one.")]
JsonOption = Annotated[bool, flag("--json", "Print the result as JSON on standard output, and nothing else there.")]
QuietOption = Annotated[bool, flag("--quiet", "Print nothing but errors.")]
DebugOption = Annotated[bool, flag("--debug", "Show the traceback of an error.")]

SourceOption = Annotated[
    str, _data("--data", metavar="NAME|PATH", help="A known source, an .npz or .csv file, or a folder of images.")
]
DataDirOption = Annotated[
    Path | None,
    _data(
        "--data-dir", metavar="DIR",
        help="Where to look for known sources first, before EXHUME_DATA and the cache.",
    ),
]  # fmt: skip
TestOption = Annotated[int | None, _data("--test", metavar="N", min=0, help="Number of test examples.")]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The options that select examples of a source; arguments of :func:`exhume.load`."""

    classes: Annotated[
        str | None,
        _data(
            "--classes", metavar="TASK", show_default="all",
            help="all, odd-even, animal-vehicle, 'cat,dog' or 'pet=cat,dog; farm=horse'.",
        ),
    ] = None  # fmt: skip
    size: Annotated[
        int | None,
        _data("--size", metavar="N", min=1, help="Number of training examples.", show_default="all there are"),
    ] = None
    label: Annotated[
        str | None, _data("--label", metavar="COLUMN", help="The column of a CSV file that holds the classes.")
    ] = None
    centre: Annotated[
        bool, _data("--centre/--no-centre", metavar="", help="Subtract the mean training image from images.")
    ] = True
    data_dir: DataDirOption = None


AttackOption = Annotated[
    list[str] | None,
    typer.Option(
        "--attack", "--attacks", metavar="NAME",
        help="An attack, such as gate-certificate or weight-difference; for several, repeat or separate by commas.",
        show_default="the strongest that applies",
    ),
]  # fmt: skip
AuditAttackOption = Annotated[
    list[str] | None,
    typer.Option(
        "--attack", "--attacks", metavar="NAME", show_default="auto",
        help="Attacks by name; auto runs every attack that applies, the cheapest first, within --budget.",
    ),
]  # fmt: skip
BudgetOption = Annotated[
    float | None,
    typer.Option(
        "--budget", min=0, metavar="MINUTES", help="Time limit for all attacks together, in minutes.",
        show_default="10 for auto, no limit for attacks by name",
    ),
]  # fmt: skip
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE",
        help="A setting of the attack, such as steps=2000; for one of several attacks, ATTACK.steps=2000.",
    ),
]  # fmt: skip
RestartsOption = Annotated[
    int,
    typer.Option(
        "--restarts", metavar="N", min=1,
        help="Number of runs from different random starts; the best by the attack's own measure is kept. On a GPU, "
        "weight-difference runs them together.",
    ),
]  # fmt: skip
DefencesOption = Annotated[
    bool,
    flag("--defences", "Also measure the cost and effect of rounding and noise before release; takes --budget again."),
]
CompareOption = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="PATH", show_default="RUN",
        help="The examples to compare with: a run folder, or a Dataset saved from Python.",
    ),
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class OwnModel:
    """The options about a network that the user's own code builds."""

    model: Annotated[
        str | None,
        _own(
            "--model", metavar="MODULE:FACTORY",
            help="A function without arguments that returns the nn.Module: package.module:factory or file.py:factory. "
            "It is imported and run, so name only code you trust.",
        ),
    ] = None  # fmt: skip
    initial: Annotated[
        list[str] | None,
        _own(
            "--initial", metavar="FILE|seed:A-B",
            help="The weights before training; or seeds to search, such as seed:0-9999; repeat to search public "
            "checkpoints.",
        ),
    ] = None  # fmt: skip
    final: Annotated[Path | None, _own("--final", metavar="FILE", help="The released weights.")] = None
    checkpoint: Annotated[
        Path | None,
        _own(
            "--checkpoint", metavar="FILE|FOLDER",
            help="A training checkpoint with the optimiser's state, instead of --final: a PyTorch file, a Lightning "
            ".ckpt, or the folder of a Hugging Face Trainer or of Accelerate.",
        ),
    ] = None  # fmt: skip
    gradient: Annotated[
        Path | None,
        _own("--gradient", metavar="FILE", help="A gradient at the released weights, by parameter name."),
    ] = None
    input_shape: Annotated[
        str | None, _own("--input-shape", metavar="C,H,W", help="The shape of one input, such as 1,28,28.")
    ] = None
    bounds: Annotated[
        str | None,
        _own(
            "--bounds", metavar="LOW,HIGH", help="The range of input values, or none.",
            show_default="0,1 for images, none for rows of a table",
        ),
    ] = None  # fmt: skip
    offset: Annotated[
        str | None,
        _own(
            "--offset", metavar="MEAN[,...]",
            help="What is subtracted from an input before it enters the network: one number, or one per channel.",
        ),
    ] = None  # fmt: skip
    training_size: Annotated[
        int | None,
        _own(
            "--training-size", metavar="N", min=1, show_default="as the weights show, else of --train-data",
            help="The number of training examples, where it is publicly known.",
        ),
    ] = None  # fmt: skip
    trained_with: Annotated[
        list[str] | None,
        _own(
            "--trained-with", metavar="NAME=VALUE",
            help="A publicly known fact of the training: optimiser=adam, loss=mse (huber, bce, ce), weight_decay=1e-3, "
            "augmentation=true.",
        ),
    ] = None  # fmt: skip


TrainDataOption = Annotated[
    Path | None,
    _own(
        "--train-data", metavar="FILE.npz",
        help="The training data of the model: arrays x (as the model receives them) and, if there are classes, y.",
    ),
]  # fmt: skip
HoldoutOption = Annotated[
    Path | None,
    _own(
        "--holdout", metavar="FILE.npz",
        help="Examples of the same kind that were not used for training; every score is compared with theirs.",
    ),
]  # fmt: skip

FailIfOption = Annotated[
    list[str] | None,
    _pipeline(
        "--fail-if", metavar="CONDITION",
        help="Exit with status 1 if any attack meets this, such as 'certified>0' or 'finding>=traces'; repeatable.",
    ),
]  # fmt: skip
JunitOption = Annotated[Path | None, _pipeline("--junit", metavar="FILE", help="Also write the result as JUnit XML.")]
SarifOption = Annotated[
    Path | None,
    _pipeline("--sarif", metavar="FILE", help="Also write the result as SARIF, for code-scanning dashboards."),
]
