"""Checkpoints: files that hold the state of long work, such as a training or the search of an attack."""

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
"""Seconds between two saves: at most half a minute of work is lost."""


class Checkpoint:
    """A file with the state of one piece of work; it refuses to continue any other."""

    def __init__(self, path: Path, identity: str, kind: str = "training") -> None:
        self.path = path
        self.identity = identity
        self.kind = kind
        self.saved_at = time.perf_counter()

    def load(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """Return the state that was saved last; None when there is no file yet."""
        if not self.path.exists():
            return None
        values, tensors = load_bundle(self.path, self.kind)
        if values.pop("identity", None) != self.identity:
            raise ExhumeError(
                f"The checkpoint {self.path} belongs to a {self.kind} with other settings or data; "
                "remove it or name another file."
            )
        return values, tensors

    def is_due(self) -> bool:
        """Return whether the last save is :data:`SAVE_SECONDS` old."""
        return time.perf_counter() - self.saved_at >= SAVE_SECONDS

    def save(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Save the state; the file is replaced in one step."""
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
