"""What all records share: equality by value, and small steps of saving and loading."""

import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import Tensor

from exhume.core.errors import ExhumeError, RecordError
from exhume.core.text import first_sentence

Bounds = tuple[float | int, float | int]
"""The lowest and the highest value; int stands beside float so that checks of types at run time let (0, 1) pass."""


class Record:
    """Equality by value, tensors included: what ``load(save(x)) == x`` means."""

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(_same(getattr(self, f.name), getattr(other, f.name)) for f in fields(self) if f.compare)  # type: ignore[arg-type]

    __hash__ = None  # type: ignore[assignment]


def _same(a: object, b: object) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    return type(a) is type(b) and a == b


class fits:  # noqa: N801 - reads as a phrase: with fits(path, "victim")
    """Turn what a wrong or hand-edited file provokes into one sentence."""

    def __init__(self, path: Path | str, kind: str) -> None:
        self.path, self.kind = path, kind

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, RecordError):  # it has said its sentence
            return
        if isinstance(error, ExhumeError | LookupError | TypeError | ValueError | AttributeError | RuntimeError):
            raise RecordError(f"{self.path} does not hold a complete {self.kind} ({first_sentence(error)}).") from error


def present(**tensors: Tensor | None) -> dict[str, Tensor]:
    """Keep the tensors that are there."""
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def check_lengths(**tensors: Tensor) -> None:
    """Raise ValueError unless the tensors have as many rows each; how a loader notices parts of different records."""
    (first, rows), *others = ((name, len(tensor)) for name, tensor in tensors.items())
    for name, other in others:
        if other != rows:
            raise ValueError(f"there are {rows} {first} but {other} {name}")


def check_bounds(bounds: Bounds | None) -> None:
    """Raise :class:`ExhumeError` unless the bounds of an input value are finite and the lower one comes first."""
    if bounds is None:
        return
    low, high = bounds
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ExhumeError(
            f"The bounds of an input value are two finite numbers, the lower one first, not ({low:g}, {high:g})."
        )


def pair(values: Any) -> Bounds | None:
    """Read bounds back from JSON."""
    return None if values is None else (float(values[0]), float(values[1]))
