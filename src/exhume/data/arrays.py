"""NumPy archives: ``x`` and ``y``, and ``x_test`` and ``y_test`` where there is a test split. Never pickled objects."""

import math
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.lib import format as npy
from torch import Tensor

from exhume.data.labels import class_names, encode
from exhume.data.source import LARGEST_SOURCE, Examples, Source, standardise
from exhume.errors import DataError
from exhume.records.record import Bounds

NAMES = (("x", "y"), ("x_train", "y_train"))
TEST_NAMES = ("x_test", "y_test")

Array = np.ndarray[Any, Any]


def read_npz(path: Path) -> Source:
    """Read an ``.npz`` file.

    Bytes are pixels, 255 becoming one. Other numbers are a table when they have two axes, and are standardised; else
    they are pixels and lie in [0, 1]. Images are ``(n, h, w)``, ``(n, c, h, w)`` or ``(n, h, w, c)``, with one or three
    channels.
    """
    arrays = _arrays(path)
    x, y = next(pair for pair in NAMES if arrays.keys() >= set(pair))
    labels = _labels(arrays[y], f"{y} in {path}")
    classes = class_names(labels)
    raw, bounds = _inputs(arrays[x], f"{x} in {path}")
    test = None
    if arrays.keys() >= set(TEST_NAMES):
        test_x, test_y = (f"{name} in {path}" for name in TEST_NAMES)
        test_raw, test_bounds = _inputs(arrays["x_test"], test_x)
        if test_raw.shape[1:] != raw.shape[1:] or test_bounds != bounds:
            raise DataError(f"{test_x} has inputs of another shape or kind than {x}.")
        test = Examples(
            inputs=test_raw if bounds else standardise(test_raw, like=raw).float(),
            labels=encode(_labels(arrays["y_test"], test_y), classes, test_y),
        )
    return Source(
        name=path.stem,
        train=Examples(
            inputs=raw if bounds else standardise(raw).float(), labels=encode(labels, classes, f"{y} in {path}")
        ),
        test=test,
        classes=classes,
        bounds=bounds,
    )


def _arrays(path: Path) -> dict[str, Array]:
    """Read the arrays with names we know, having made sure that the training ones are there."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            if not any(members.keys() >= set(pair) for pair in NAMES):
                held = ", ".join(sorted(members)[:8]) or "nothing"
                raise DataError(f"{path} must hold arrays x and y (or x_train and y_train); it holds {held}.")
            wanted = {name for names in (*NAMES, TEST_NAMES) for name in names} & members.keys()
            return {name: _array(archive, members[name], f"{name} in {path}") for name in wanted}
    # All that zipfile and NumPy raise on damaged bytes; RuntimeError is an unknown or encrypted way of packing.
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError, OverflowError) as error:
        raise DataError(f"{path} is truncated or not a NumPy .npz archive ({error}).") from error


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, where: str) -> Array:
    with archive.open(member) as file:
        _check_declared(file, member.file_size, where)
    with archive.open(member) as file:
        array: Array = npy.read_array(file, allow_pickle=False)
        return array


def _check_declared(file: IO[bytes], size: int, where: str) -> None:
    """Hold a member's header against its size before NumPy sets memory aside for the shape the header declares."""
    version = npy.read_magic(file)
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read_header(file)
    if dtype.hasobject:
        raise DataError(
            f"{where} holds pickled Python objects, which are never loaded; save it as an array of numbers."
        )
    declared = math.prod(shape) * dtype.itemsize
    if declared > LARGEST_SOURCE:
        raise DataError(
            f"{where} declares {declared:,} bytes, more than the {LARGEST_SOURCE:,} that are read; take fewer."
        )
    if declared + file.tell() != size:
        raise DataError(f"{where} declares {declared:,} bytes of values but holds {size - file.tell():,}.")


def _labels(array: Array, where: str) -> list[str]:
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or not len(array):
        raise DataError(f"{where} must be one label an example, not an array of shape {array.shape}.")
    if array.dtype.kind in "SU":
        return [str(label) for label in array.astype(str)]
    if array.dtype.kind == "f" and bool(np.isfinite(array).all()) and bool((array == np.round(array)).all()):
        array = array.astype(np.int64)
    if array.dtype.kind not in "biu":
        raise DataError(f"{where} must hold whole numbers or names, one a class, not {array.dtype} values.")
    return [str(int(label)) for label in array]


def _inputs(array: Array, where: str) -> tuple[Tensor, Bounds | None]:
    if array.dtype.kind not in "biuf":
        raise DataError(f"{where} must hold numbers, not {array.dtype} values.")
    if array.ndim not in (2, 3, 4) or 0 in array.shape:
        raise DataError(
            f"{where} must be a table (n, d) or images (n, h, w[, c]), not an array of shape {array.shape}."
        )
    if array.dtype == np.uint8:
        return _channels_first(torch.from_numpy(array), where), (0.0, 1.0)
    values = torch.from_numpy(array.astype(np.float64))
    if not bool((values.abs() <= torch.finfo(torch.float32).max).all()):
        raise DataError(f"{where} holds NaN or infinite values; fill them in or drop the examples.")
    if array.ndim == 2:
        return values, None
    low, high = float(values.min()), float(values.max())
    if low < 0 or high > 1:
        raise DataError(
            f"{where} holds pixels from {low:g} to {high:g}; save them as bytes (uint8) or scale them to [0, 1]."
        )
    return _channels_first(values.float(), where), (0.0, 1.0)


def _channels_first(images: Tensor, where: str) -> Tensor:
    if images.ndim == 2:
        return images  # flat pixels
    if images.ndim == 3:
        return images[:, None]
    if images.shape[1] in (1, 3):
        return images
    if images.shape[3] in (1, 3):
        return images.permute(0, 3, 1, 2).contiguous()
    raise DataError(f"{where} must hold images of one or three channels, not an array of shape {tuple(images.shape)}.")
