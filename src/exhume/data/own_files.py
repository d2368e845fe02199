"""Read the data of a user's own model: ``.npz`` files with inputs as the model takes them."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from exhume.core.errors import DataError
from exhume.data.labels import encode_labels, sort_classes
from exhume.data.npz_files import find_names, read_arrays, read_labels
from exhume.data.source import to_unit
from exhume.records import Dataset, Split
from exhume.records.record import Bounds

CLASSES_MOST = 10_000
"""Whole numbers below this are class indices of the model; larger ones are taken as class names."""


def read_own_files(
    train: Path,
    holdout: Path | None,
    *,
    input_shape: tuple[int, ...],
    bounds: Bounds | None,
    offset: Float[Tensor, "..."] | None = None,
) -> Dataset:
    """Read training and held-out examples of a model from ``.npz`` files with an array ``x`` and perhaps ``y``.

    ``x`` holds inputs as they are passed to ``model(x)``. Bytes are divided by 255 where the range is [0, 1]. ``y``
    holds class indices or names; other numbers are regression targets and are not used. No attack needs ``y``.

    Args:
        train: the training examples.
        holdout: examples from the same source that the model has not seen; without them scores have no null.
        input_shape: the shape of one input.
        bounds: the range of an input value before ``offset`` is subtracted.
        offset: what users of the model subtract from pixels; added back here, as records hold pixel units.

    Raises:
        DataError: when a file is damaged or does not hold numbers with one label each. Whether the inputs fit the
            model is for :func:`exhume.evaluation.data_checks.check_data`.
    """
    files = [train] if holdout is None else [train, holdout]
    read = [_read(path, input_shape, bounds, offset) for path in files]
    names = [label for _, labels in read for label in labels or ()]
    classes = _classes(names) if all(labels is not None for _, labels in read) else ("",)
    splits = [
        Split(inputs=inputs, labels=_indices(labels, classes, len(inputs), path))
        for path, (inputs, labels) in zip(files, read, strict=True)
    ]
    return Dataset(
        name=train.stem,
        train=splits[0],
        holdout=splits[1] if holdout is not None else splits[0].take(slice(0)),
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
    x, y = find_names(arrays)
    inputs = _inputs(arrays[x], f"{x} in {path}", input_shape, bounds)
    if offset is not None and tuple(inputs.shape[1:]) == input_shape:
        inputs = inputs + offset.to(inputs)
    if y not in arrays:
        return inputs, None
    if arrays[y].ndim == 0 or len(arrays[y]) != len(inputs):
        raise DataError(
            f"{path} has {len(inputs)} inputs but labels of shape {arrays[y].shape}; it needs one label per input."
        )
    return inputs, None if _is_regression(arrays[y]) else read_labels(arrays[y], f"{y} in {path}")


def _inputs(array: NDArray[Any], where: str, shape: tuple[int, ...], bounds: Bounds | None) -> Tensor:
    if array.ndim > 0 and len(array) == 0:
        raise DataError(f"{where} holds no examples.")
    if array.dtype.kind not in "biuf" or array.ndim == 0 or 0 in array.shape:
        raise DataError(f"{where} must hold numbers, not {array.dtype} values of shape {array.shape}.")
    with np.errstate(all="ignore"):  # values beyond float32 become infinite, which the check of the data refuses
        values = torch.from_numpy(array if array.dtype == np.uint8 else array.astype(np.float32))
    values = to_unit(values) if bounds is not None and max(bounds) <= 1 else values.float()
    is_same_shape = [size for size in array.shape[1:] if size > 1] == [size for size in shape if size > 1]
    return values.reshape(len(array), *shape) if is_same_shape else values


def _is_regression(array: NDArray[Any]) -> bool:
    is_whole = array.dtype.kind != "f" or not np.isfinite(array).all() or bool((array == np.round(array)).all())
    return not is_whole or (array.ndim > 1 and array.size != len(array))


def _classes(names: list[str]) -> tuple[str, ...]:
    """Return the classes; whole numbers from zero are indices of the model's outputs, so gaps are filled in."""
    distinct = sort_classes(names)
    if distinct and all(name.isdecimal() for name in distinct) and int(distinct[-1]) < CLASSES_MOST:
        return tuple(str(index) for index in range(max(2, int(distinct[-1]) + 1)))
    return distinct


def _indices(labels: list[str] | None, classes: tuple[str, ...], count: int, path: Path) -> Tensor:
    if labels is None or classes == ("",):
        return torch.zeros(count, dtype=torch.long)
    return encode_labels(labels, classes, str(path))
