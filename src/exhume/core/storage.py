"""Files: one per record, with tensors as safetensors and everything else as JSON in the header; never a pickle.

A file is replaced in one step, so a reader sees the old record or the new one and nothing in between.
"""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
from safetensors.torch import save as serialise
from torch import Tensor

from exhume.core.errors import RecordError
from exhume.core.text import first_sentence

FORMAT = "exhume-1"
"""Name of the file format; raised when a reader of this version could not read a file of the next."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` so that the file is either complete or untouched, even when the disk fills up."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)  # noqa: PTH101 - mkstemp makes files that only their owner can read
        os.replace(name, path)  # noqa: PTH105 - the atomic step itself
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write JSON atomically; raise ValueError for numbers that JSON cannot hold (NaN, infinity)."""
    write_atomically(path, (json.dumps(values, indent=2, allow_nan=False) + "\n").encode())


def save_bundle(path: Path, kind: str, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Save named tensors and JSON values as one safetensors file of the given kind."""
    try:
        header = {"format": FORMAT, "kind": kind, "values": json.dumps(values, allow_nan=False)}
    except (TypeError, ValueError) as error:
        raise RecordError(f"A {kind} with values that JSON cannot hold cannot be saved ({error}).") from error
    copies = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    write_atomically(path, serialise(copies, metadata=header))


def load_bundle(path: Path, kind: str, *, former_kind: str | None = None) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Load what :func:`save_bundle` wrote.

    Args:
        path: the file.
        kind: the kind it was saved as.
        former_kind: a name that earlier versions used for this kind.

    Raises:
        RecordError: with one sentence, when the file is missing, damaged or of another kind.
    """
    if not path.is_file():
        raise RecordError(f"There is no {kind} file at {path}.")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        values = json.loads(header.get("values", "null"))
    except (safetensors.SafetensorError, ValueError, OSError, RecursionError) as error:
        raise RecordError(f"{path} is truncated or not a safetensors file ({first_sentence(error)}).") from error
    if header.get("format") != FORMAT or header.get("kind") not in (kind, former_kind) or not isinstance(values, dict):
        raise RecordError(f"{path} is not a saved {kind} of this version of exhume ({FORMAT}).")
    return values, tensors


def select_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names start with ``prefix/``, with the prefix removed.

    >>> import torch
    >>> sorted(select_prefix({"final/w": torch.ones(1), "initial/w": torch.zeros(1)}, "final"))
    ['w']
    """
    return {name[len(prefix) + 1 :]: tensor for name, tensor in tensors.items() if name.startswith(prefix + "/")}


def add_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with ``prefix/`` before every name; the inverse of :func:`select_prefix`."""
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}
