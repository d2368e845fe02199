"""Read data sets that ``exhume distil``, ``train`` or ``data show`` saved; they are used as they are, not drawn."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from exhume.core.errors import DataError
from exhume.core.text import count_noun
from exhume.records import Dataset, Split

FILE = "data.safetensors"
"""Name of the data set that a command saves in its run folder."""


def find_saved_dataset(name: str | Path) -> Path | None:
    """Return ``name`` if it is a saved data set, or the saved data set in the folder ``name``; else None."""
    path = Path(name).expanduser()
    if path.suffix.lower() == ".safetensors":
        return path
    inside = path / FILE
    return inside if str(name) and inside.is_file() else None


def read_saved_dataset(path: Path, *, test: int | None = None, **redraw: Any) -> Dataset:
    """Read a saved data set, with the first ``test`` of its test examples.

    Args:
        path: the file.
        test: number of test examples; None: all.
        redraw: settings of a draw, by name. All must be None, because a saved data set was drawn already.

    Raises:
        DataError: when there is no such file, when its examples cannot be trained on, or when a setting of a draw is
            given.
    """
    given = ", ".join(name for name, value in redraw.items() if value is not None)
    if given:
        raise DataError(f"{path} holds a data set that was drawn already; omit {given}.")
    if not path.is_file():
        raise DataError(f"There is no file {path}.")
    data = Dataset.load(path)
    for name in ("train", "holdout", "test"):
        split: Split | None = getattr(data, name)
        if split is not None:
            _check(split, data, f"{name} in {path}")
    if len(data.train) == 0:
        raise DataError(f"{path} has no training examples.")
    if test is None or data.test is None:
        return data if test != 0 else replace(data, test=None)
    if test > len(data.test):
        raise DataError(f"{path} has {count_noun(len(data.test), 'test example')}, not {test}; ask for fewer.")
    return replace(data, test=data.test.take(slice(test)) if test else None)


def _check(split: Split, data: Dataset, where: str) -> None:
    if tuple(split.inputs.shape[1:]) != data.input_shape:
        raise DataError(f"{where} holds inputs of shape {tuple(split.inputs.shape[1:])}, not {data.input_shape}.")
    values = [split.inputs, *([] if split.targets is None else [split.targets])]
    if not all(bool(torch.isfinite(value).all()) for value in values):
        raise DataError(f"{where} holds NaN or infinite values.")
    if len(split) and not 0 <= int(split.labels.min()) <= int(split.labels.max()) < len(data.classes):
        raise DataError(f"{where} holds labels outside of its {len(data.classes)} classes.")
