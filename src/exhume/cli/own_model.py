"""Build the view of a network from the user's own code and files."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import torch
from torch import Tensor, nn

from exhume.auditing import draw_weights, find_base, find_seed
from exhume.auditing.start_search import FoundStart
from exhume.cli.options import OwnModel
from exhume.core.errors import ExhumeError, WeightsError
from exhume.core.progress import Progress, no_progress
from exhume.core.settings_from_text import parse_value
from exhume.core.text import first_sentence
from exhume.core.weight_files import load_weights
from exhume.models.outputs import with_tensor_output
from exhume.records import AttackerView, PublicTraining, StartEvidence, count_outputs, read_checkpoint, takes_token_ids
from exhume.records.record import Bounds
from exhume.training.settings import LossName

SEEDS = "seed:"
"""Prefix of an --initial that names seeds to search."""
NUMERIC_FACTS = ("weight_decay", "momentum", "lr", "batch_size", "steps", "epochs", "noise_multiplier")
"""Facts about a training that must be numbers, because attacks compute with them."""
LOSS_NAMES: tuple[str, ...] = get_args(LossName)


def build_view(
    own: OwnModel, progress: Progress = no_progress, note: Callable[[str], None] = lambda _: None
) -> tuple[AttackerView, StartEvidence | None]:
    """Build a view of the network, and search for its initial weights where ``own.initial`` asks for it.

    ``own.model`` names code of the user, which is imported. ``note`` receives what a checkpoint holds, in words.
    """
    if own.model is None or (own.final or own.checkpoint) is None or own.input_shape is None:
        raise ExhumeError(
            "With --model, name the weights (--final or --checkpoint) and the shape of one input (--input-shape) too."
        )
    if own.final is not None and own.checkpoint is not None:
        raise ExhumeError("A checkpoint holds the weights; name either --final or --checkpoint.")
    sizes = _parse_numbers(own.input_shape, "--input-shape", "1,28,28")
    if not all(size >= 1 and size.is_integer() for size in sizes):
        raise ExhumeError(f"--input-shape takes positive whole numbers such as 1,28,28, not {own.input_shape!r}.")
    shape = tuple(map(int, sizes))
    means = None if own.offset is None else torch.tensor(_parse_numbers(own.offset, "--offset", "0.13"))
    if means is not None and len(means) not in (1, shape[0]):
        raise ExhumeError(f"--offset takes one number or one per channel, here {shape[0]}, not {len(means)}.")
    initial = own.initial or ()
    seeds = parse_seeds(initial)
    name, factory = own.model, find_factory(own.model)
    network = build_model(factory, name)
    if not takes_token_ids(network, shape):
        # Refuses models that cannot be audited, before long work.
        count_outputs(with_tensor_output(network, shape), shape)
    names = network.state_dict().keys()
    view = AttackerView(
        model=network,
        **_load_evidence(own, network, note),
        input_shape=shape,
        bounds=parse_bounds(own.bounds, shape),
        offset=None if means is None else means.reshape(-1, *[1] * (len(shape) - 1)),
        training=PublicTraining.from_facts(
            _parse_facts(own.trained_with or ())
            | ({} if own.training_size is None else {"training_size": own.training_size})
        ),
    )
    if seeds:
        found = find_seed(view, lambda seed: _weights_from_seed(factory, name, seed), seeds, progress)
    elif initial:
        found = find_base(view, {file: load_weights(Path(file), names) for file in initial})
    else:
        return view, None
    return _with_start(view, found)


def _load_evidence(own: OwnModel, network: nn.Module, note: Callable[[str], None]) -> dict[str, Any]:
    """Load the released weights, and the gradient or the optimiser's state where there is one."""
    names = network.state_dict().keys()
    held: dict[str, Any] = {}
    if own.checkpoint is not None:
        content = read_checkpoint(own.checkpoint, network)
        note(content.sentence)
        held |= {"final": content.weights, "optimiser_state": content.optimiser_state}
    elif own.final is not None:
        held["final"] = load_weights(own.final, names)
    if own.gradient is not None:
        held["gradient"] = load_weights(own.gradient, names)
    return held


def _with_start(view: AttackerView, found: FoundStart) -> tuple[AttackerView, StartEvidence]:
    evidence = found.evidence
    if evidence.tried > 1 and not evidence.is_clear:
        raise WeightsError(
            f"None of the {evidence.tried} candidates for the initial weights stands out: chance explains even "
            f"{evidence.best.name}; widen the search, or omit --initial to attack with the final weights alone."
        )
    return replace(view, initial=found.weights), evidence


def parse_seeds(initial: Sequence[str]) -> list[int]:
    """Read ``seed:0-9999``, ``seed:42`` or ``seed:1,7,42``; an empty list where ``initial`` names files.

    >>> parse_seeds(["seed:3-5,9"]), parse_seeds(["base.safetensors"])
    ([3, 4, 5, 9], [])
    """
    named = [text for text in initial if text.startswith(SEEDS)]
    if named and len(named) < len(initial):
        raise ExhumeError("--initial names files or seeds, not both.")
    seeds: list[int] = []
    for text in named:
        for part in text.removeprefix(SEEDS).split(","):
            first, _, last = part.partition("-")
            if not (first.isdecimal() and (last or first).isdecimal() and int(first) <= int(last or first) < 2**63):
                raise ExhumeError(f"--initial takes seed:0-9999, seed:42 or seed:1,7,42, not {text!r}.")
            if int(last or first) - int(first) >= 10**7:
                raise ExhumeError(f"{text!r} names more seeds than can be tried; the limit is ten million.")
            seeds += range(int(first), int(last or first) + 1)
    return seeds


def find_factory(name: str) -> Callable[..., Any]:
    """Import ``package.module:factory`` or ``file.py:factory``."""
    place, separator, factory = name.rpartition(":")
    if not separator or not factory.isidentifier() or not place:
        raise ExhumeError(f"--model takes package.module:factory or file.py:factory, not {name!r}.")
    build = getattr(_import(place), factory, None)
    if not callable(build):
        raise ExhumeError(f"{place} has no function {factory!r}.")
    return build  # type: ignore[no-any-return] # any callable


def build_model(factory: Callable[..., Any], name: str, **arguments: int) -> nn.Module:
    """Return the model that the user's factory builds."""
    try:
        model = factory(**arguments)
    except (Exception, SystemExit) as error:  # the user's code may raise anything, or exit
        raise ExhumeError(f"{name}() failed: {type(error).__name__}: {first_sentence(error)}.") from error
    if not isinstance(model, nn.Module):
        raise ExhumeError(f"{name}() returned a {type(model).__name__}, not an nn.Module.")
    if not any(True for _ in model.parameters()):
        raise WeightsError(f"{name}() returned a module without weights.")
    return model


def _weights_from_seed(factory: Callable[..., Any], name: str, seed: int) -> dict[str, Tensor]:
    """Build the model after seeding PyTorch, and pass the seed to a factory that takes one."""
    own = {"seed": seed} if "seed" in inspect.signature(factory).parameters else {}
    return draw_weights(lambda: build_model(factory, name, **own), seed)


def _import(place: str) -> ModuleType:
    file = Path(place)
    try:
        if file.suffix == ".py":
            return _import_file(file)
        # An installed command does not search the working directory; python -m does.
        if str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(place)
    except ExhumeError:
        raise
    except ModuleNotFoundError as error:
        raise ExhumeError(f"{place} cannot be imported: there is no module {error.name!r}.") from error
    except (Exception, SystemExit) as error:  # scripts end with SystemExit, and code 0 would look like a finished audit
        raise ExhumeError(f"{place} cannot be imported: {type(error).__name__}: {first_sentence(error)}.") from error


def _import_file(file: Path) -> ModuleType:
    if not file.is_file():
        raise ExhumeError(f"There is no file {file}.")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _parse_facts(training: Sequence[str]) -> dict[str, Any]:
    facts = {}
    for text in training:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise ExhumeError(f"--trained-with takes NAME=VALUE, such as optimiser=adam, not {text!r}.")
        fact, parsed = name.strip().replace("-", "_"), parse_value(value.strip())
        if fact in NUMERIC_FACTS and (isinstance(parsed, bool) or not isinstance(parsed, int | float)):
            raise ExhumeError(f"--trained-with takes a number for {fact}, not {value.strip()!r}.")
        if fact == "loss":
            parsed = _check_loss(value.strip())
        facts[fact] = parsed
    return facts


def _check_loss(name: str) -> str:
    """Return the name of a loss; attacks compute with it, so it must be a known one."""
    if name.lower() not in LOSS_NAMES:
        *most, last = LOSS_NAMES
        names = f"{', '.join(most)} or {last}"
        raise ExhumeError(f"--trained-with takes {names} for loss, not {name!r}; omit it for another loss.")
    return name.lower()


def _parse_numbers(text: str, option: str, example: str) -> list[float]:
    try:
        return [float(part) for part in text.strip("()[] ").rstrip(",").split(",")]  # also as Python prints a shape
    except ValueError:
        raise ExhumeError(f"{option} takes numbers such as {example}, not {text!r}.") from None


def parse_bounds(text: str | None, shape: tuple[int, ...]) -> Bounds | None:
    """Read ``0,1`` or ``none``; without a text, images have values from 0 to 1 and rows of a table no range."""
    if text is None:
        return (0.0, 1.0) if len(shape) > 1 else None
    if text.lower() == "none":
        return None
    ends = _parse_numbers(text, "--bounds", "0,1")
    if len(ends) != 2 or not ends[0] < ends[1]:
        raise ExhumeError(f"--bounds takes the lowest and the highest value, such as 0,1, not {text!r}.")
    return ends[0], ends[1]
