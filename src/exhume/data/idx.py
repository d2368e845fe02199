"""Read the IDX format of MNIST and similar data sets: a big-endian header with the shape, then bytes."""

import math
import struct
from collections.abc import Mapping
from pathlib import Path

import torch
from jaxtyping import UInt8
from torch import Tensor

from exhume.core.errors import DataError
from exhume.data.source import LARGEST_SOURCE, Examples, Source
from exhume.data.streams import open_file, read_up_to

UNSIGNED_BYTES = 8
SIDE = 28

DIGITS = tuple(str(digit) for digit in range(10))
CLOTHES = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")


def read_idx(path: Path, dimensions: int) -> UInt8[Tensor, "..."]:
    """Read an IDX file of unsigned bytes, plain or gzip, with the given number of dimensions.

    No more is decompressed than the header declares, so a gzip bomb does no harm.
    """
    magic = bytes([0, 0, UNSIGNED_BYTES, dimensions])
    with open_file(path) as stream:
        header = read_up_to(stream, 4 + 4 * dimensions)
        if header[:4] != magic[: len(header)] or not header:
            raise DataError(
                f"{path} is not an IDX file of bytes in {dimensions} dimension{'s' * (dimensions > 1)}: "
                f"it begins with {header[:4].hex() or 'nothing'}, not {magic.hex()}."
            )
        if len(header) < 4 + 4 * dimensions:
            raise DataError(f"{path} is truncated within its header; fetch or copy it again.")
        shape = struct.unpack(f">{dimensions}I", header[4:])
        size = math.prod(shape)
        if not 0 < size <= LARGEST_SOURCE:
            raise DataError(
                f"{path} declares {' x '.join(map(str, shape))} values, which no data set of this kind has."
            )
        body = read_up_to(
            stream, size + 1
        )  # one more than declared, to notice surplus bytes and to reach gzip's checksum
    if len(body) < size:
        raise DataError(
            f"{path} is truncated: it declares {size:,} values and holds {len(body):,}; fetch or copy it again."
        )
    if len(body) > size:
        raise DataError(f"{path} holds more than the {size:,} values it declares; fetch or copy it again.")
    return torch.frombuffer(body, dtype=torch.uint8).reshape(shape)


def read_mnist(files: Mapping[str, Path], name: str, classes: tuple[str, ...]) -> Source:
    """Read the four files of MNIST, or of a data set in the same format."""
    return Source(
        name=name,
        train=_examples(files["train-images-idx3-ubyte"], files["train-labels-idx1-ubyte"], classes),
        test=_examples(files["t10k-images-idx3-ubyte"], files["t10k-labels-idx1-ubyte"], classes),
        classes=classes,
        bounds=(0.0, 1.0),
    )


def _examples(images_path: Path, labels_path: Path, classes: tuple[str, ...]) -> Examples:
    images, labels = read_idx(images_path, 3), read_idx(labels_path, 1)
    if images.shape[1:] != (SIDE, SIDE):
        height, width = images.shape[1:]
        raise DataError(f"{images_path} holds images of {height} x {width} pixels, not {SIDE} x {SIDE}.")
    if labels.max() >= len(classes):
        raise DataError(f"{labels_path} holds label {int(labels.max())}, but there are only {len(classes)} classes.")
    if len(images) != len(labels):
        raise DataError(
            f"{images_path} holds {len(images)} images but {labels_path.name} {len(labels)} labels; "
            "the files do not belong together."
        )
    return Examples(inputs=images[:, None], labels=labels.long())
