"""The view of a network that somebody else's code built."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import torch
from torch import nn

from exhume.checkpoints import load_weights
from exhume.errors import ExhumeError, WeightsError
from exhume.records import AttackerView, count_outputs
from exhume.records.record import Bounds


def own_view(
    *, model: str, initial: Path | None, final: Path | None, input_shape: str | None, bounds: str, offset: str | None
) -> AttackerView:
    """Build a view from what the command line was given; ``model`` names the owner's own code, which is imported."""
    if final is None or input_shape is None:
        raise ExhumeError("With --model, name the weights (--final) and the shape of one input (--input-shape) too.")
    sizes = _numbers(input_shape, "--input-shape", "1,28,28")
    if not all(size >= 1 and size.is_integer() for size in sizes):
        raise ExhumeError(f"--input-shape takes positive whole numbers such as 1,28,28, not {input_shape!r}.")
    shape = tuple(map(int, sizes))
    means = None if offset is None else torch.tensor(_numbers(offset, "--offset", "0.13"))
    if means is not None and len(means) not in (1, shape[0]):
        raise ExhumeError(f"--offset takes one number or one a channel, here {shape[0]}, not {len(means)}.")
    network = build_model(model)
    try:
        count_outputs(network, shape)
    except Exception as error:  # the owner's code may raise anything
        raise ExhumeError(f"The model does not take inputs of shape {shape}: {error}") from error
    return AttackerView(
        model=network,
        final=load_weights(final),
        initial=None if initial is None else load_weights(initial),
        input_shape=shape,
        bounds=_range(bounds),
        offset=None if means is None else means.reshape(-1, *[1] * (len(shape) - 1)),
    )


def build_model(name: str) -> nn.Module:
    """Import ``package.module:factory`` or ``file.py:factory`` and return what the factory builds."""
    place, separator, factory = name.rpartition(":")
    if not separator or not factory.isidentifier() or not place:
        raise ExhumeError(f"--model reads package.module:factory or file.py:factory, not {name!r}.")
    module = _import(place)
    build = getattr(module, factory, None)
    if not callable(build):
        raise ExhumeError(f"{place} has no function {factory!r}.")
    try:
        model = build()
    except Exception as error:  # the owner's code may raise anything
        raise ExhumeError(f"{name}() failed: {type(error).__name__}: {error}") from error
    if not isinstance(model, nn.Module):
        raise ExhumeError(f"{name}() returned a {type(model).__name__}, not an nn.Module.")
    if not any(True for _ in model.parameters()):
        raise WeightsError(f"{name}() returned a module without weights.")
    return model


def _import(place: str) -> ModuleType:
    file = Path(place)
    try:
        if file.suffix == ".py":
            return _import_file(file)
        # An installed command does not look into the working directory by itself; python -m does.
        if str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(place)
    except ExhumeError:
        raise
    except ModuleNotFoundError as error:
        raise ExhumeError(f"{place} cannot be imported: there is no module {error.name!r}.") from error
    except Exception as error:  # the owner's code may raise anything
        raise ExhumeError(f"{place} cannot be imported: {type(error).__name__}: {error}") from error


def _import_file(file: Path) -> ModuleType:
    if not file.is_file():
        raise ExhumeError(f"There is no file {file}.")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _numbers(text: str, option: str, example: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ExhumeError(f"{option} takes numbers such as {example}, not {text!r}.") from None


def _range(text: str) -> Bounds | None:
    if text.lower() == "none":
        return None
    ends = _numbers(text, "--bounds", "0,1")
    if len(ends) != 2 or not ends[0] < ends[1]:
        raise ExhumeError(f"--bounds takes the lowest and the highest value, such as 0,1, not {text!r}.")
    return ends[0], ends[1]
