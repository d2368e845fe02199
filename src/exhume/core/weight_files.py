"""Read weights from files of unknown origin without executing anything inside them.

A PyTorch checkpoint is a pickle, and unpickling can execute code. So these files are read by ``torch.load`` with
``weights_only=True``, which accepts only tensors and plain containers.
"""

import pickle
import reprlib
import warnings
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from exhume.core.errors import WeightsError
from exhume.core.text import first_sentence

CONTAINERS = ("state_dict", "model_state_dict", "model")
"""Names under which training scripts store the weights in a larger checkpoint."""
PREFIXES = ("module.", "_orig_mod.", "model.")
"""Prefixes that wrappers (data parallelism, compilation, training frameworks) add to every name."""
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
    if not path.is_file():
        raise WeightsError(f"There is no file of weights at {path}.")
    if path.suffix == ".safetensors":
        content: object = _read_safetensors(path)
    elif path.suffix in PYTORCH_SUFFIXES:
        content = _read_pytorch(path)
    else:
        known = ", ".join((".safetensors", *PYTORCH_SUFFIXES))
        raise WeightsError(f"{path} does not end like a file of weights; known endings are {known}.")
    weights = _unwrap(path, content)
    for name, weight in weights.items():
        _check(path, name, weight)
    return weights if weights.keys() == set(names) else _strip_prefixes(weights)


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
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise WeightsError(
            f"{path} is not a plain PyTorch checkpoint: it is damaged, or a pickle that would run code when read; "
            "save its state_dict alone, best as safetensors."
        ) from error
    except Exception as error:  # a damaged archive causes errors of every kind
        raise WeightsError(f"{path} is truncated or not a PyTorch checkpoint ({first_sentence(error)}).") from error


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


def _check(path: Path, name: str, weight: Tensor) -> None:
    plain = weight.layout == torch.strided and weight.device.type == "cpu" and not weight.is_quantized
    if not plain or weight.numel() * weight.element_size() > weight.untyped_storage().nbytes():
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
