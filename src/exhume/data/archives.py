"""Unpack a downloaded tar archive without trusting it."""

import gzip
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from exhume.core.errors import DataError
from exhume.data.streams import LimitedStream


def unpack(archive: Path, into: Path, *, wanted: Collection[str], limit: int) -> None:
    """Unpack the ``wanted`` files of a ``.tar.gz``, without their folders, into a folder: all of them, or none.

    Raises:
        DataError: when the archive contains links, devices, absolute paths or ``..``, lacks a wanted file, or unpacks
            to more than ``limit`` bytes (headers included).
    """
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into, prefix=".unpacking-") as folder:
        try:
            with (
                gzip.open(archive, "rb") as raw,
                tarfile.open(fileobj=LimitedStream(raw, limit, str(archive)), mode="r|") as tar,
            ):
                found = _extract(tar, Path(folder), set(wanted), limit, archive)
        except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
            raise DataError(f"{archive} cannot be unpacked ({error}); remove it and fetch it again.") from error
        missing = sorted(set(wanted) - found)
        if missing:
            raise DataError(f"{archive} does not contain {', '.join(missing)}; it is not the published archive.")
        for name in sorted(found):
            shutil.move(Path(folder) / name, into / name)


def _extract(tar: tarfile.TarFile, folder: Path, wanted: set[str], limit: int, archive: Path) -> set[str]:
    found: set[str] = set()
    total = 0
    for member in tar:
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts or not (member.isfile() or member.isdir()):
            raise DataError(
                f"{archive} contains {member.name!r}, a link, a device or a path out of the folder; "
                "it was not unpacked."
            )
        total += member.size
        if total > limit:
            raise DataError(f"{archive} unpacks to more than {limit:,} bytes; it is not the published archive.")
        if member.isfile() and path.name in wanted:
            if path.name in found:
                raise DataError(f"{archive} contains {path.name} twice; it is not the published archive.")
            found.add(path.name)
            tar.extract(member.replace(name=path.name, deep=False), folder, filter="data")
    return found
