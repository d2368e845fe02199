"""The file of long work under way: a training, or the search of an attack."""

import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from exhume.core.errors import ExhumeError
from exhume.core.storage import load_bundle, save_bundle

SAVE_SECONDS = 30.0
"""How often work under way saves its state."""


class Checkpoint:
    """A file that holds work of one kind under way, and refuses to continue another piece of it."""

    def __init__(self, path: Path, identity: str, kind: str = "training") -> None:
        self.path = path
        self.identity = identity
        self.kind = kind
        self.saved_at = time.perf_counter()

    def load(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """Return what was saved last; None when there is no file yet."""
        if not self.path.exists():
            return None
        values, tensors = load_bundle(self.path, self.kind)
        if values.pop("identity", None) != self.identity:
            raise ExhumeError(
                f"The checkpoint {self.path} belongs to a {self.kind} with other settings or data; "
                "remove it or name another file."
            )
        return values, tensors

    def due(self) -> bool:
        """Tell whether the last save was long enough ago."""
        return time.perf_counter() - self.saved_at >= SAVE_SECONDS

    def save(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Replace the file in one step."""
        save_bundle(self.path, self.kind, {**values, "identity": self.identity}, tensors)
        self.saved_at = time.perf_counter()


def fingerprint(values: Mapping[str, Any], *tensors: Tensor) -> str:
    """Return a digest of JSON values and tensors.

    >>> import torch
    >>> fingerprint({"lr": 0.1}, torch.zeros(2)) == fingerprint({"lr": 0.1}, torch.ones(2))
    False
    """
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode())
    for tensor in tensors:
        digest.update(str((tensor.dtype, tuple(tensor.shape))).encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
