"""Read weights from files of unknown origin without executing anything inside them.

A PyTorch checkpoint is a pickle, and unpickling can execute code. So these files are read by ``torch.load`` with
``weights_only=True``, which accepts only tensors and plain containers.
"""

import pickle
import reprlib
import warnings
import zipfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from exhume.core.errors import WeightsError
from exhume.core.text import first_sentence

CONTAINERS = ("state_dict", "model_state_dict", "model", "model_state", "network", "net")
"""Names under which training scripts store the weights in a larger checkpoint."""
PREFIXES = ("module.", "_orig_mod.", "model.")
"""Prefixes that wrappers (data parallelism, compilation, training frameworks) add to every name."""
HARMLESS_MODULES = ("argparse", "collections", "datetime", "lightning", "numpy", "omegaconf", "pathlib",
                    "pytorch_lightning")  # fmt: skip
"""Modules whose objects training scripts store beside the weights (arguments, paths, scores); they are skipped."""
PYTORCH_SUFFIXES = (".pt", ".pth", ".ckpt", ".bin")


def load_weights(path: Path | str, names: Collection[str] = ()) -> dict[str, Tensor]:
    """Load weights by name, on the CPU, from a ``.safetensors`` file or a PyTorch checkpoint.

    Args:
        path: a file that ends in ``.safetensors``, ``.pt``, ``.pth``, ``.ckpt`` or ``.bin``.
        names: the names in the model, where they are known; weights that have these names keep them.

    Returns:
        The weights by their names in the bare model: taken out of a surrounding checkpoint, without the prefixes that
        wrappers add.

    Raises:
        WeightsError: when the file is missing, is not such a file, holds anything but finite real tensors, or is a
            pickle that would execute code.
    """
    path = Path(path)
    return take_weights(path, read_content(path), names)


def read_content(path: Path) -> object:
    """Read everything that a file of weights holds, executing nothing inside it.

    Raises:
        WeightsError: as :func:`load_weights`, except for what the content is.
    """
    if not path.is_file():
        raise WeightsError(f"There is no file of weights at {path}.")
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    if path.suffix in PYTORCH_SUFFIXES:
        return _read_pytorch(path)
    known = ", ".join((".safetensors", *PYTORCH_SUFFIXES))
    raise WeightsError(f"{path} does not end like a file of weights; known endings are {known}.")


def take_weights(path: Path, content: object, names: Collection[str] = ()) -> dict[str, Tensor]:
    """Take the weights out of the content of a file; see :func:`load_weights`."""
    weights = _unwrap(path, content)
    for name, weight in weights.items():
        check_plain(path, name, weight)
    return match_names(weights, names)


def match_names(weights: dict[str, Tensor], names: Collection[str]) -> dict[str, Tensor]:
    """Return weights by their names in the bare model, without the prefixes that wrappers add.

    >>> list(match_names({"module.bias": torch.zeros(2)}, ["bias"]))
    ['bias']
    """
    if weights.keys() == set(names):
        return weights
    stripped = _strip_prefixes(weights)
    return stripped if stripped.keys() == set(names) else _take_below_prefix(weights, names) or stripped


def _take_below_prefix(weights: dict[str, Tensor], names: Collection[str]) -> dict[str, Tensor] | None:
    """Return the weights whose names are one and the same prefix and a name of the model; None if that is not clear.

    A training framework stores the weights of its own module, in which the model is one attribute among others.
    """
    if not names:
        return None
    one = next(iter(names))
    prefixes = {name.removesuffix(one) for name in weights if name.endswith(f".{one}")}
    fitting = [prefix for prefix in prefixes if all(prefix + name in weights for name in names)]
    return {name: weights[fitting[0] + name] for name in names} if len(fitting) == 1 else None


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load_file(path)
    except (safetensors.SafetensorError, OSError, ValueError, KeyError, RuntimeError) as error:
        raise WeightsError(f"{path} is truncated or not a safetensors file ({first_sentence(error)}).") from error


def _read_pytorch(path: Path) -> object:
    _refuse_expanding(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns about some files before it refuses them
            with torch.serialization.safe_globals(_stand_ins(path)):
                return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise WeightsError(
            f"{path} is not a plain PyTorch checkpoint: it is damaged, or a pickle that would run code when read; "
            "save its state_dict alone, best as safetensors."
        ) from error
    except Exception as error:  # a damaged archive causes errors of every kind
        raise WeightsError(f"{path} is truncated or not a PyTorch checkpoint ({first_sentence(error)}).") from error


class _Ignored:
    """Takes the place of an object that a checkpoint holds beside tensors; its own code is never imported."""

    def __init__(self, *_: object) -> None: ...
    def __setstate__(self, _: object) -> None: ...


def _stand_ins(path: Path) -> list[Callable[..., Any] | tuple[Callable[..., Any], str]]:
    """Return a stand-in for every object of a harmless module that a checkpoint mentions."""
    try:
        mentioned = torch.serialization.get_unsafe_globals_in_checkpoint(str(path))
    except Exception:  # a damaged file, about which torch.load says more
        return []
    return [(_Ignored, name) for name in mentioned if name.partition(".")[0] in HARMLESS_MODULES]


def _refuse_expanding(path: Path) -> None:
    """Refuse an archive that expands far beyond its size; a checkpoint stores tensors uncompressed."""
    try:
        with zipfile.ZipFile(path) as archive:
            expanded = sum(entry.file_size for entry in archive.infolist())
    except Exception:  # not an archive, or a damaged one: torch.load reports which
        return
    if expanded > 2 * path.stat().st_size + 2**20:
        raise WeightsError(
            f"{path} would unpack to {expanded} bytes, far more than it holds: no PyTorch checkpoint does."
        )


def _unwrap(path: Path, content: object) -> dict[str, Tensor]:
    for _ in range(len(CONTAINERS)):  # bounded: a checkpoint can be made to contain itself
        for name in CONTAINERS:
            if isinstance(content, Mapping) and isinstance(content.get(name), Mapping):
                content = content[name]
    if not isinstance(content, Mapping) or not content:
        raise WeightsError(f"{path} holds no weights by name; save a model's state_dict().")
    weights: dict[str, Tensor] = {}
    for name, weight in content.items():
        if not isinstance(name, str) or not isinstance(weight, Tensor):
            raise WeightsError(f"{path} holds {_shorten(name)}, which is no tensor; save a model's state_dict() alone.")
        weights[name] = weight.detach()
    return weights


def is_plain(weight: Tensor) -> bool:
    """Return whether a tensor is dense, with a place in memory for each value, and of a type that PyTorch computes in.

    PyTorch stores floating-point numbers of 8 bits but has no arithmetic for them.
    """
    if weight.layout != torch.strided or weight.is_quantized or weight.is_nested:
        return False
    if weight.is_floating_point() and weight.element_size() < 2:
        return False
    return weight.numel() * weight.element_size() <= weight.untyped_storage().nbytes()


def check_plain(path: Path, name: str, weight: Tensor) -> None:
    """Raise :class:`WeightsError` unless a tensor of a file is dense, real and finite."""
    if weight.device.type != "cpu" or not is_plain(weight):
        raise WeightsError(f"{path} holds {_shorten(name)} in a form other than plain numbers; save dense tensors.")
    if weight.is_complex():
        raise WeightsError(f"{path} holds complex numbers in {_shorten(name)}; exhume reads real networks.")
    if weight.is_floating_point() and not bool(torch.isfinite(weight.float()).all()):
        raise WeightsError(f"{path} holds NaN or infinite values in {_shorten(name)}: the training diverged.")


def _strip_prefixes(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Remove known prefixes that all names share, in any order and nesting."""
    while True:
        common = [
            prefix
            for prefix in PREFIXES
            if all(len(name) > len(prefix) and name.startswith(prefix) for name in weights)
        ]
        if not common:
            return weights
        weights = {name[len(common[0]) :]: weight for name, weight in weights.items()}


def _shorten(name: object) -> str:
    return reprlib.repr(name)
