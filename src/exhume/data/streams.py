"""Read untrusted files, plain or gzip: never more bytes than asked for, and a :class:`DataError` when damaged."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, runtime_checkable

from exhume.core.errors import DataError

GZIP_MAGIC = b"\x1f\x8b"
CHUNK = 2**20
"""Bytes per read."""


@runtime_checkable
class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int, /) -> bytes:
        """Read at most ``size`` bytes; empty at the end."""
        ...


@contextmanager
def open_file(path: Path) -> Iterator[Readable]:
    """Open a file for reading, decompressing it if its first bytes (not its name) are those of gzip."""
    if not path.is_file():
        raise DataError(f"There is no file at {path}.")
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == GZIP_MAGIC
            raw.seek(0)
            if packed:
                with gzip.GzipFile(fileobj=raw) as unpacked:
                    yield unpacked
            else:
                yield raw
    except EOFError as error:
        raise DataError(f"{path} is truncated: its gzip stream ends early; fetch or copy it again.") from error
    except (OSError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({error}); fetch or copy it again.") from error


def read_up_to(stream: Readable, size: int) -> bytearray:
    """Read ``size`` bytes, or fewer at the end; memory grows with the bytes that are really there."""
    content = bytearray()
    while len(content) < size:
        chunk = stream.read(min(CHUNK, size - len(content)))
        if not chunk:
            break
        content += chunk
    return content


class LimitedStream(io.RawIOBase):
    """A stream of at most ``limit`` bytes, so that a small file cannot unpack to a large one."""

    def __init__(self, stream: Readable, limit: int, name: str) -> None:
        super().__init__()
        self.stream, self.left, self.name, self.limit = stream, limit, name, limit

    def read(self, size: int = -1, /) -> bytes:
        """Read at most ``size`` bytes.

        Raises:
            DataError: once the limit is passed.
        """
        chunk = self.stream.read(CHUNK if size < 0 else min(size, CHUNK))
        self.left -= len(chunk)
        if self.left < 0:
            raise DataError(f"{self.name} unpacks to more than {self.limit:,} bytes; it is not the published file.")
        return chunk
