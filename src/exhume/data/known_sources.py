"""The sources that exhume knows by name, where it searches for their files, and how it reads a path."""

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pooch

from exhume.core.errors import DataError
from exhume.data.bundled import read_breast_cancer, read_digits, read_faces
from exhume.data.cifar import CIFAR_10, CIFAR_100, read_cifar
from exhume.data.csv_files import read_csv
from exhume.data.idx import CLOTHES, DIGITS, read_mnist
from exhume.data.image_folder import read_image_folder
from exhume.data.npz_files import read_npz
from exhume.data.source import Source

ENVIRONMENT = "EXHUME_DATA"
"""Environment variable with the folder of data files."""
MNIST_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


@dataclass(frozen=True, kw_only=True)
class BundledSource:
    """A source that comes with exhume's dependencies."""

    description: str
    read: Callable[[], Source]


@dataclass(frozen=True, kw_only=True)
class FileSource:
    """A source that is read from files with known names."""

    description: str
    folders: tuple[str, ...]
    """Folders of the files, relative to a data folder; a download writes to the first."""
    files: tuple[str, ...]
    optional: tuple[str, ...] = ()
    read: Callable[[Mapping[str, Path]], Source]


KNOWN_SOURCES: dict[str, BundledSource | FileSource] = {
    "digits": BundledSource(description="1797 handwritten digits, 8×8 grey, ten classes", read=read_digits),
    "faces": BundledSource(description="100 faces and 100 patches of background, 25×25 grey", read=read_faces),
    "breast-cancer": BundledSource(description="569 tumours of 30 measurements, two classes", read=read_breast_cancer),
    "mnist": FileSource(
        description="70 000 handwritten digits, 28×28 grey, ten classes",
        folders=("mnist", "MNIST/raw", "."),
        files=MNIST_FILES,
        read=partial(read_mnist, name="mnist", classes=DIGITS),
    ),
    "fashion-mnist": FileSource(
        description="70 000 pictures of clothes, 28×28 grey, ten classes",
        # Not the data folder itself: the files have the same names as MNIST's and could be confused with them.
        folders=("fashion-mnist", "FashionMNIST/raw"),
        files=MNIST_FILES,
        read=partial(read_mnist, name="fashion-mnist", classes=CLOTHES),
    ),
    "cifar-10": FileSource(
        description="60 000 photographs, 32×32 colour, ten classes",
        folders=("cifar-10", "cifar-10/cifar-10-batches-bin", "cifar-10-batches-bin", "."),
        files=("data_batch_1.bin", "test_batch.bin"),
        optional=tuple(f"data_batch_{number}.bin" for number in range(2, 6)),
        read=partial(read_cifar, name="cifar-10", classes=CIFAR_10),
    ),
    "cifar-100": FileSource(
        description="60 000 photographs, 32×32 colour, a hundred classes",
        folders=("cifar-100", "cifar-100/cifar-100-binary", "cifar-100-binary", "."),
        files=("train.bin", "test.bin"),
        read=partial(read_cifar, name="cifar-100", classes=CIFAR_100),
    ),
}


@dataclass(frozen=True, kw_only=True)
class Availability:
    """Whether a known source can be loaded on this machine, and from where."""

    name: str
    description: str
    present: bool
    location: str
    """A folder, ``bundled``, or how to get the source if it is missing."""


def search_path(data_dir: Path | str | None = None) -> list[Path]:
    """Return the folders to search for files: ``data_dir``, then ``EXHUME_DATA``, then the download cache."""
    named = [data_dir, os.environ.get(ENVIRONMENT)]
    return [Path(folder).expanduser() for folder in named if folder] + [Path(pooch.os_cache("exhume"))]


def available(data_dir: Path | str | None = None) -> list[Availability]:
    """Return for each known source whether it is present, and where."""
    return [_availability(name, known, data_dir) for name, known in KNOWN_SOURCES.items()]


def read_source(name: str | Path, *, label: str | None = None, data_dir: Path | str | None = None) -> Source:
    """Read a source by its name, or from a path: an ``.npz`` or ``.csv`` file, or a folder of images."""
    known = KNOWN_SOURCES.get(name) if isinstance(name, str) else None
    if not str(name):
        raise DataError(f"Name a source or a path.{_suggestion('')}")
    if label is not None and (known or Path(name).suffix.lower() != ".csv"):
        raise DataError(f"Only CSV files have a label column; {name} has its own labels.")
    if known is not None:
        return known.read() if isinstance(known, BundledSource) else known.read(locate(str(name), known, data_dir))
    try:
        return _read_path(Path(name).expanduser(), label)
    except (OSError, RuntimeError) as error:  # RuntimeError: unknown user in ~user
        reason = getattr(error, "strerror", None) or error  # without the name, which may be very long
        raise DataError(f"{str(name)[:200]} cannot be read ({reason}).") from error


def _read_path(path: Path, label: str | None) -> Source:
    if path.is_dir():
        return read_image_folder(path)
    if not path.is_file():
        raise DataError(
            f"There is no source {str(path)!r}, and no file or folder of that name.{_suggestion(str(path))}"
        )
    if path.suffix.lower() == ".npz":
        return read_npz(path)
    if path.suffix.lower() == ".csv":
        return read_csv(path, label)
    raise DataError(
        f"{path} is of an unknown kind; use an .npz file, a .csv file or a folder of images (unpack an archive first)."
    )


def locate(name: str, known: FileSource, data_dir: Path | str | None = None) -> dict[str, Path]:
    """Return the files of a known source from the first folder of the search path that has them all.

    Raises:
        DataError: when no folder has them all.
    """
    folders = [root / below for root in search_path(data_dir) for below in known.folders]
    found = [(folder, _files_in(folder, known)) for folder in folders]
    for _, files in found:
        if files.keys() >= set(known.files):
            return files
    folder, files = max(found, key=lambda candidate: len(candidate[1]))
    missing = ", ".join(file for file in known.files if file not in files)
    if files:
        raise DataError(f"{folder} holds only a part of {name}; {missing} (or .gz) is missing.")
    roots = ", ".join(str(root) for root in search_path(data_dir))
    raise DataError(
        f"{name} is not in {roots}; run 'exhume data fetch {name}', or put {missing} (plain or .gz) "
        f"into a sub-folder {known.folders[0]} of a folder named by --data-dir or {ENVIRONMENT}."
    )


def _files_in(folder: Path, known: FileSource) -> dict[str, Path]:
    wanted = known.files + known.optional
    spellings = (
        (file, folder / (spelling + packed))
        for file in wanted
        for spelling in (file, file.replace("-idx", ".idx"))  # mirrors of MNIST write train-images.idx3-ubyte
        for packed in ("", ".gz")
    )
    found: dict[str, Path] = {}
    for file, path in spellings:
        if file not in found and path.is_file():
            found[file] = path
    return found


def _availability(name: str, known: BundledSource | FileSource, data_dir: Path | str | None) -> Availability:
    location, present = "bundled", True
    if isinstance(known, FileSource):
        try:
            location = str(next(iter(locate(name, known, data_dir).values())).parent)
        except DataError:
            location, present = f"run: exhume data fetch {name}", False
    return Availability(name=name, description=known.description, present=present, location=location)


def _suggestion(name: str) -> str:
    close = difflib.get_close_matches(name.lower(), KNOWN_SOURCES, n=1)
    return f" Did you mean {close[0]!r}?" if close else f" Known sources are {', '.join(KNOWN_SOURCES)}."
