"""Read ``.npz`` files with arrays ``x`` and ``y`` (and ``x_test``, ``y_test``); pickled objects are refused."""

import math
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray
from torch import Tensor

from exhume.core.errors import DataError
from exhume.core.text import first_sentence
from exhume.data.labels import encode_labels, sort_classes
from exhume.data.source import LARGEST_SOURCE, Examples, Source, standardise_columns
from exhume.records.record import Bounds

NAMES = (("x", "y"), ("x_train", "y_train"))
TEST_NAMES = ("x_test", "y_test")
LARGEST_LABEL = 2**53
"""Whole numbers from here on are not all different from each other as floating-point numbers."""

Array = NDArray[Any]


def read_npz(path: Path) -> Source:
    """Read an ``.npz`` file.

    Bytes are pixels and are divided by 255. Other numbers with two axes are a table and are standardised; with more
    axes they are pixels in [0, 1]. Images are ``(n, h, w)``, ``(n, c, h, w)`` or ``(n, h, w, c)``, with one or three
    channels.
    """
    arrays = read_arrays(path)
    x, y = find_names(arrays)
    if y not in arrays:
        raise DataError(f"{path} has no labels {y}, which a training needs.")
    labels = read_labels(arrays[y], f"{y} in {path}")
    classes = sort_classes(labels)
    inputs, bounds = _inputs(arrays[x], f"{x} in {path}")

    def examples(values: Tensor, names: list[str], where: str) -> Examples:
        if len(values) != len(names):
            raise DataError(f"{where} has {len(values)} inputs but {len(names)} labels; they do not belong together.")
        scaled = values if bounds else standardise_columns(values, like=inputs).float()
        return Examples(inputs=scaled, labels=encode_labels(names, classes, where))

    test = None
    if arrays.keys() >= set(TEST_NAMES):
        test_inputs, test_bounds = _inputs(arrays["x_test"], f"x_test in {path}")
        if test_inputs.shape[1:] != inputs.shape[1:] or test_bounds != bounds:
            raise DataError(f"x_test in {path} has inputs of another shape or kind than {x}.")
        test = examples(test_inputs, read_labels(arrays["y_test"], f"y_test in {path}"), f"The test split of {path}")
    return Source(name=path.stem, train=examples(inputs, labels, str(path)), test=test, classes=classes, bounds=bounds)


def find_names(arrays: Mapping[str, Array]) -> tuple[str, str]:
    """Return the names of inputs and labels; the labels may be missing."""
    return next((pair for pair in NAMES if arrays.keys() >= set(pair)), None) or next(
        pair for pair in NAMES if pair[0] in arrays
    )


def read_arrays(path: Path) -> dict[str, Array]:
    """Return the arrays with known names.

    Raises:
        DataError: when the training arrays are missing or the file is damaged.
    """
    if path.suffix == ".npy":
        raise DataError(f"{path} is one array without a name; save it with np.savez(file, x=array).")
    try:
        with zipfile.ZipFile(path) as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy asks to save files of Python 2 again
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            if not any(inputs in members for inputs, _ in NAMES):
                held = ", ".join(sorted(members)[:8]) or "nothing"
                raise DataError(
                    f"{path} must contain an array x, and labels y for a training (or x_train and y_train); it "
                    f"contains {held}."
                )
            wanted = {name for names in (*NAMES, TEST_NAMES) for name in names} & members.keys()
            return {name: _array(archive, members[name], f"{name} in {path}") for name in wanted}
    except DataError:
        raise
    except Exception as error:  # NumPy parses headers as Python source, which can raise any error
        raise DataError(f"{path} is truncated or not a NumPy .npz archive ({first_sentence(error)}).") from error


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, where: str) -> Array:
    _check_header(archive, member, where)
    with archive.open(member) as file:
        array: Array = npy.read_array(file, allow_pickle=False)
        return array


def _check_header(archive: zipfile.ZipFile, member: zipfile.ZipInfo, where: str) -> None:
    """Compare a header with the size of its file before NumPy allocates memory for the declared shape."""
    with archive.open(member) as file:
        version = npy.read_magic(file)
        shape, _, dtype = (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(file)
        held = member.file_size - file.tell()
    if dtype.hasobject:
        raise DataError(f"{where} holds pickled Python objects, which are never loaded; save an array of numbers.")
    declared = math.prod(shape) * dtype.itemsize
    if declared > LARGEST_SOURCE:
        raise DataError(f"{where} declares {declared:,} bytes; the limit is {LARGEST_SOURCE:,}, so use fewer examples.")
    if declared != held:
        raise DataError(f"{where} declares {declared:,} bytes of values but holds {held:,}.")


def read_labels(array: Array, where: str) -> list[str]:
    """Return labels, which may be whole numbers or names, as strings."""
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or not len(array):
        raise DataError(f"{where} must be one label per example, not an array of shape {array.shape}.")
    if array.dtype.kind in "SU":
        return [str(label) for label in array.astype(str)]
    is_moderate = array.dtype.kind == "f" and bool((np.abs(array.astype(np.float64)) < LARGEST_LABEL).all())
    if is_moderate and bool((array == np.round(array)).all()):
        array = array.astype(np.int64)
    if array.dtype.kind not in "biu":
        raise DataError(f"{where} must hold whole numbers or names, one per class, not {array.dtype} values.")
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
