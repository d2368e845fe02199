"""Download known sources from their publishers and check them against published checksums."""

import logging
from dataclasses import dataclass
from pathlib import Path

import pooch

from exhume.core.errors import DataError
from exhume.core.progress import Progress, no_progress
from exhume.data.archives import unpack
from exhume.data.known_sources import KNOWN_SOURCES, MNIST_FILES, BundledSource, FileSource, search_path

LARGEST_DOWNLOAD = 2**28
"""Most bytes to accept from a server; the largest source, CIFAR-10, has 170 MB."""
LARGEST_ARCHIVE = 2**28
"""Most bytes an archive may unpack to; CIFAR-10 unpacks to 184 MB."""
TIMEOUT = 30
"""Seconds to wait for an answer of the server."""


@dataclass(frozen=True, kw_only=True)
class Download:
    """A published file and its checksum."""

    url: str
    checksum: str
    unpacks_to: tuple[str, ...] = ()
    """The files to unpack, if this is an archive."""

    @property
    def file(self) -> str:
        """The name of the file."""
        return self.url.rpartition("/")[2]


def _mnist_like(root: str, checksums: tuple[str, str, str, str]) -> tuple[Download, ...]:
    return tuple(
        Download(url=f"{root}/{file}.gz", checksum=checksum)
        for file, checksum in zip(MNIST_FILES, checksums, strict=True)
    )


DOWNLOADS: dict[str, tuple[Download, ...]] = {
    "mnist": _mnist_like(
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        (
            "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    ),
    "fashion-mnist": _mnist_like(
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
        (
            "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "md5:25c81989df183df01b3e8a0aad5dffbe",
            "md5:bef4ecab320f06d8554ea6380940ec79",
            "md5:bb300cfdad3c16e7a12a480ee83cd310",
        ),
    ),
    "cifar-10": (
        Download(
            url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            checksum="sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            unpacks_to=(*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"),
        ),
    ),
    "cifar-100": (
        Download(
            url="https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
            checksum="sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            unpacks_to=("train.bin", "test.bin"),
        ),
    ),
}


def fetch(name: str, data_dir: Path | str | None = None, progress: Progress = no_progress) -> Path:
    """Download a known source into ``data_dir`` (else ``EXHUME_DATA``, else the cache) and return its folder.

    A source that is present is not downloaded again. An official file that is already in the folder is checked and
    used, so machines without a network can be given the file by other means.

    Raises:
        DataError: when there is no such download, no network, no disk space, or when the file is not the published one.
    """
    known = KNOWN_SOURCES.get(name)
    if isinstance(known, BundledSource):
        raise DataError(f"{name} comes with exhume; there is nothing to fetch.")
    if known is None or name not in DOWNLOADS:
        raise DataError(f"There is no download named {name!r}; choose from {', '.join(DOWNLOADS)}.")
    folder = search_path(data_dir)[0] / known.folders[0]
    if not _complete(name, known, folder):
        for download in DOWNLOADS[name]:
            _retrieve(download, folder, progress)
    return folder


def _complete(name: str, known: FileSource, folder: Path) -> bool:
    wanted = {file for download in DOWNLOADS[name] for file in download.unpacks_to} or set(known.files)
    return all((folder / file).is_file() or (folder / f"{file}.gz").is_file() for file in wanted)


def _retrieve(download: Download, folder: Path, progress: Progress) -> None:
    import requests  # takes 0.1 s to import, and only downloads need it

    # pooch logs every download to standard error; the progress callback reports it instead.
    pooch.get_logger().setLevel(logging.WARNING)
    bar = _ProgressBar(f"fetch {download.file}", progress)
    try:
        path = pooch.retrieve(
            download.url,
            known_hash=download.checksum,
            fname=download.file,
            path=folder,
            downloader=pooch.HTTPDownloader(progressbar=bar, timeout=TIMEOUT),
        )
    except requests.exceptions.ConnectionError as error:
        raise DataError(
            f"{download.url} cannot be reached; check the network, or copy the file into {folder} and fetch again."
        ) from error
    except requests.exceptions.RequestException as error:
        raise DataError(f"{download.url} cannot be downloaded ({error}).") from error
    except ValueError as error:  # raised by pooch when the checksum differs
        raise DataError(
            f"{download.url} is not the published file: its checksum differs, so it was deleted."
        ) from error
    except OSError as error:
        raise DataError(f"{download.file} cannot be written to {folder} ({error}).") from error
    if download.unpacks_to:
        unpack(Path(path), folder, wanted=download.unpacks_to, limit=LARGEST_ARCHIVE)


class _ProgressBar:
    """A progress bar for pooch that reports to a callback and stops a server that never stops sending."""

    def __init__(self, stage: str, progress: Progress) -> None:
        self.stage, self.progress, self.total, self.done = stage, progress, 0, 0

    def update(self, size: int) -> None:
        """Count ``size`` more bytes."""
        self.done += size
        if self.done > LARGEST_DOWNLOAD:
            raise DataError(f"{self.stage}: stopped, because the server sent more than {LARGEST_DOWNLOAD:,} bytes.")
        self.progress(self.stage, min(self.done, self.total) if self.total else self.done, self.total)

    def reset(self) -> None:
        """Start again from zero; pooch does this before it fills the bar at the end."""
        self.done = 0

    def close(self) -> None:
        """Do nothing: the callback needs no closing."""
