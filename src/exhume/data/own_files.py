"""The data of somebody's own model: ``.npz`` files with the inputs as the model takes them."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from exhume.core.errors import DataError
from exhume.data.labels import encode_labels, sort_classes
from exhume.data.npz_files import NAMES, read_arrays, read_labels
from exhume.data.source import to_unit
from exhume.records import Dataset, Split
from exhume.records.record import Bounds

CLASSES_MOST = 10_000
"""Whole numbers below this are class indices as the model has them; larger ones are names."""


def read_own_files(
    train: Path,
    holdout: Path | None,
    *,
    input_shape: tuple[int, ...],
    bounds: Bounds | None,
    offset: Float[Tensor, "..."] | None = None,
) -> Dataset:
    """Read what a model was trained on, and what it was not, from ``.npz`` files with arrays ``x`` and ``y``.

    ``x`` holds inputs in the units the model takes: what stands between the brackets of ``model(x)``. Bytes are pixels,
    255 becoming one, where the range is [0, 1]. ``y`` holds class indices or names; other numbers are targets of a
    regression, and take no part.

    Args:
        train: the training examples.
        holdout: examples from the same source that the model has not seen; without them no score has its null.
        input_shape: the shape of one input.
        bounds: the range of an input value before ``offset`` is subtracted.
        offset: what users of the model subtract first; added back here, as records hold inputs in pixel units.

    Raises:
        DataError: when a file is damaged or does not hold numbers with one label each. Whether the inputs fit the
            model is for :func:`exhume.auditing.data_checks.check_data`.
    """
    files = [train] if holdout is None else [train, holdout]
    read = [_read(path, input_shape, bounds, offset) for path in files]
    names = [label for _, labels in read for label in labels or ()]
    classes = _classes(names) if all(labels is not None for _, labels in read) else ("",)
    splits = [
        Split(inputs=inputs, labels=_indices(labels, classes, len(inputs), path))
        for path, (inputs, labels) in zip(files, read, strict=True)
    ]
    nothing = Split(inputs=splits[0].inputs[:0], labels=splits[0].labels[:0])
    return Dataset(
        name=train.stem,
        train=splits[0],
        holdout=splits[1] if holdout is not None else nothing,
        classes=classes,
        bounds=bounds,
        offset=offset,
    )


def _read(
    path: Path, input_shape: tuple[int, ...], bounds: Bounds | None, offset: Tensor | None
) -> tuple[Tensor, list[str] | None]:
    if not path.is_file():
        raise DataError(f"There is no file {path}.")
    arrays = read_arrays(path)
    x, y = next(pair for pair in NAMES if arrays.keys() >= set(pair))
    inputs = _inputs(arrays[x], f"{x} in {path}", input_shape, bounds)
    if offset is not None and tuple(inputs.shape[1:]) == input_shape:
        inputs = inputs + offset.to(inputs)
    if arrays[y].ndim == 0 or len(arrays[y]) != len(inputs):
        raise DataError(f"{path} has {len(inputs)} inputs but labels of shape {arrays[y].shape}: not one each.")
    return inputs, None if _is_regression(arrays[y]) else read_labels(arrays[y], f"{y} in {path}")


def _inputs(array: NDArray[Any], where: str, shape: tuple[int, ...], bounds: Bounds | None) -> Tensor:
    if array.ndim > 0 and len(array) == 0:
        raise DataError(f"{where} holds no examples.")
    if array.dtype.kind not in "biuf" or array.ndim == 0 or 0 in array.shape:
        raise DataError(f"{where} must hold numbers, not {array.dtype} values of shape {array.shape}.")
    values = torch.from_numpy(array if array.dtype == np.uint8 else array.astype(np.float32))
    values = to_unit(values) if bounds is not None and max(bounds) <= 1 else values.float()
    is_same_shape = [size for size in array.shape[1:] if size > 1] == [size for size in shape if size > 1]
    return values.reshape(len(array), *shape) if is_same_shape else values


def _is_regression(array: NDArray[Any]) -> bool:
    is_whole = array.dtype.kind != "f" or not np.isfinite(array).all() or bool((array == np.round(array)).all())
    return not is_whole or (array.ndim > 1 and array.size != len(array))


def _classes(names: list[str]) -> tuple[str, ...]:
    """Return the classes in the order of the model's outputs, where labels are whole numbers from zero."""
    distinct = sort_classes(names)
    if distinct and all(name.isdecimal() for name in distinct) and int(distinct[-1]) < CLASSES_MOST:
        return tuple(str(index) for index in range(max(2, int(distinct[-1]) + 1)))
    return distinct


def _indices(labels: list[str] | None, classes: tuple[str, ...], count: int, path: Path) -> Tensor:
    if labels is None or classes == ("",):
        return torch.zeros(count, dtype=torch.long)
    return encode_labels(labels, classes, str(path))
