"""Read a folder of images with one sub-folder per class."""

import warnings
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from exhume.core.errors import DataError
from exhume.data.source import LARGEST_SOURCE, Examples, Source

# An explicit list keeps untrusted files away from the rarer decoders (one of them runs PostScript).
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm"})
GREY = frozenset({"1", "L"})
COLOUR = frozenset({"RGB", "RGBA", "P", "LA", "PA", "CMYK", "YCbCr"})
LARGEST_IMAGE = 4096 * 4096
"""Most pixels per image; a file of a few kilobytes can declare a thousand times as many."""


def read_image_folder(folder: Path) -> Source:
    """Read every image in ``folder/<class>/``, with one channel if all are grey and as RGB otherwise."""
    classes = sorted(child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
    if not classes:
        raise DataError(f"{folder} has no sub-folders; put the images of each class into a sub-folder named after it.")
    files = [(path, label) for label, child in enumerate(classes) for path in _images_in(child)]
    sizes = [_inspect(path) for path, _ in files]
    _check_sizes([path for path, _ in files], sizes)
    mode = "L" if all(kind in GREY for _, kind in sizes) else "RGB"
    inputs = torch.stack([_decode(path, mode) for path, _ in files])
    return Source(
        name=folder.resolve().name,
        train=Examples(inputs=inputs, labels=torch.tensor([label for _, label in files], dtype=torch.long)),
        classes=tuple(child.name for child in classes),
        bounds=(0.0, 1.0),
    )


def _images_in(folder: Path) -> list[Path]:
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.suffix.lower() in SUFFIXES)
    if not files:
        raise DataError(f"{folder} holds no images ({', '.join(sorted(SUFFIXES))}); every sub-folder is one class.")
    return files


def _inspect(path: Path) -> tuple[tuple[int, int], str]:
    """Return size and mode from the header, before any pixel is decoded."""
    with _open(path) as image:
        if image.width * image.height > LARGEST_IMAGE:
            raise DataError(f"{path} declares {image.width} x {image.height} pixels; the limit is {LARGEST_IMAGE:,}.")
        if image.mode not in GREY | COLOUR:
            raise DataError(f"{path} has pixels of mode {image.mode}; save it with 8 bits per channel.")
        return image.size, image.mode


def _check_sizes(files: list[Path], sizes: list[tuple[tuple[int, int], str]]) -> None:
    (width, height), _ = sizes[0]
    for path, (size, _) in zip(files, sizes, strict=True):
        if size != (width, height):
            raise DataError(
                f"{path} has {size[0]} x {size[1]} pixels but {files[0]} {width} x {height}; "
                "resize all images to one size first."
            )
    if 3 * width * height * len(files) > LARGEST_SOURCE:
        raise DataError(
            f"{len(files)} images of {width} x {height} pixels are too large together; use fewer or smaller images."
        )


def _decode(path: Path, mode: str) -> Tensor:
    with _open(path) as image:
        try:
            pixels = np.array(image.convert(mode))
        except Exception as error:  # decoders can raise any error on damaged bytes
            raise DataError(f"{path} is damaged ({error}); replace or remove it.") from error
    tensor = torch.from_numpy(pixels)
    return tensor[None] if mode == "L" else tensor.permute(2, 0, 1).contiguous()


def _open(path: Path) -> Image.Image:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own limit is lower and is an error
            return Image.open(path, formats=FORMATS)
    except Image.DecompressionBombError as error:
        raise DataError(f"{path} declares too many pixels ({error}).") from error
    except Exception as error:  # decoders can raise any error on damaged bytes
        raise DataError(f"{path} is not a readable image; replace or remove it.") from error
