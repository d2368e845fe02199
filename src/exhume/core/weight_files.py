"""Weights from other people's files, read without ever running what is inside them.

A PyTorch checkpoint is a pickle, and unpickling can run anything; so these files go through ``torch.load`` with
``weights_only=True`` alone, which knows tensors and plain containers and nothing else.
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
"""Where training scripts put the weights among other things."""
PREFIXES = ("module.", "_orig_mod.", "model.")
"""What wrappers (data parallelism, compilation, training frameworks) put before every name."""
PYTORCH_SUFFIXES = (".pt", ".pth", ".ckpt", ".bin")


def load_weights(path: Path | str, names: Collection[str] = ()) -> dict[str, Tensor]:
    """Load weights by name, on the CPU, from a ``.safetensors`` file or a PyTorch checkpoint.

    Args:
        path: a file that ends in ``.safetensors``, ``.pt``, ``.pth``, ``.ckpt`` or ``.bin``.
        names: the names the model has, where they are known; weights that carry them already keep them.

    Returns:
        The weights under the names they have in the bare model: taken out of a surrounding checkpoint, and without the
        prefixes that wrappers add.

    Raises:
        WeightsError: when the file is missing, is not such a file, holds anything but finite real tensors, or is a
            pickle that would have to be run to be read.
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
            warnings.simplefilter("ignore")  # PyTorch muses about some files before it gives them up
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise WeightsError(
            f"{path} is not a plain PyTorch checkpoint: it is damaged, or a pickle that would run code when read; "
            "save its state_dict alone, best as safetensors."
        ) from error
    except Exception as error:  # a damaged archive provokes errors of every kind, none of which concerns the reader
        raise WeightsError(f"{path} is truncated or not a PyTorch checkpoint ({first_sentence(error)}).") from error


def _refuse_expanding(path: Path) -> None:
    """Refuse an archive whose contents are far larger than the file; a checkpoint stores its tensors uncompressed."""
    try:
        with zipfile.ZipFile(path) as archive:
            expanded = sum(entry.file_size for entry in archive.infolist())
    except Exception:  # not an archive, or a damaged one: torch.load says which
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
            raise WeightsError(f"{path} holds {_short(name)}, which is no tensor; save a model's state_dict() alone.")
        weights[name] = weight.detach()
    return weights


def _check(path: Path, name: str, weight: Tensor) -> None:
    plain = weight.layout == torch.strided and weight.device.type == "cpu" and not weight.is_quantized
    if not plain or weight.numel() * weight.element_size() > weight.untyped_storage().nbytes():
        raise WeightsError(f"{path} holds {_short(name)} in a form other than plain numbers; save dense tensors.")
    if weight.is_complex():
        raise WeightsError(f"{path} holds complex numbers in {_short(name)}; exhume reads real networks.")
    if weight.is_floating_point() and not bool(torch.isfinite(weight.float()).all()):
        raise WeightsError(f"{path} holds NaN or infinite values in {_short(name)}: the training diverged.")


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


def _short(name: object) -> str:
    return reprlib.repr(name)
