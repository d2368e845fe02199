"""Parts that all records share: equality by value, checks, and small steps of saving and loading."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import Tensor

from exhume.core.errors import ExhumeError, RecordError
from exhume.core.text import first_sentence

Bounds = tuple[float | int, float | int]
"""The lowest and the highest value; ``int`` stands beside ``float`` so that run-time type checks accept (0, 1)."""


class Record:
    """A frozen dataclass with equality by value, tensors included, so that ``load(save(x)) == x``."""

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(_equal(getattr(self, f.name), getattr(other, f.name)) for f in fields(self) if f.compare)  # type: ignore[arg-type]

    __hash__ = None  # type: ignore[assignment]


def _equal(a: object, b: object) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    return type(a) is type(b) and a == b


def split_tensors(record: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Split the fields of a record into JSON values and tensors; fields that are None are left out."""
    every = {f.name: getattr(record, f.name) for f in fields(record)}
    tensors = {name: value for name, value in every.items() if isinstance(value, Tensor)}
    values = {name: value for name, value in every.items() if name not in tensors and value is not None}
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()}, tensors


@contextmanager
def refuse_misfits(path: Path | str, kind: str) -> Iterator[None]:
    """Turn the errors that a wrong or hand-edited file causes into one :class:`RecordError`."""
    try:
        yield
    except RecordError:
        raise
    except (ExhumeError, LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise RecordError(f"{path} does not hold a complete {kind} ({first_sentence(error)}).") from error


def drop_none(**tensors: Tensor | None) -> dict[str, Tensor]:
    """Return the tensors that are not None."""
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def check_lengths(**tensors: Tensor) -> None:
    """Raise ValueError unless all tensors have the same number of rows, as parts of one record do."""
    (first, rows), *others = ((name, len(tensor)) for name, tensor in tensors.items())
    for name, other in others:
        if other != rows:
            raise ValueError(f"there are {rows} {first} but {other} {name}")


def check_bounds(bounds: Any) -> Bounds | None:
    """Return the bounds of an input value as a tuple.

    Raises:
        ExhumeError: unless they are two finite numbers in ascending order.
    """
    if bounds is None:
        return None
    try:
        low, high = (value if isinstance(value, int) else float(value) for value in bounds)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ExhumeError(
            f"The bounds of an input value are two finite numbers, such as (0, 1), not {bounds!r}."
        ) from error
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ExhumeError(
            f"The bounds of an input value are two finite numbers, the lower one first, not ({low:g}, {high:g})."
        )
    return bounds if isinstance(bounds, tuple) else (low, high)


def read_bounds(values: Any) -> Bounds | None:
    """Read bounds from their JSON value."""
    return None if values is None else (float(values[0]), float(values[1]))
