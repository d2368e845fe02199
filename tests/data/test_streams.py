"""Untrusted files: gzip is recognised by content, damage is one sentence, and limits hold."""

import gzip
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.core.errors import DataError
from exhume.data.streams import LimitedStream, open_file, read_up_to


@pytest.mark.parametrize("name", ["plain", "misleading.gz"])
@pytest.mark.parametrize("packed", [False, True])
def test_gzip_is_recognised_by_content_and_not_by_name(tmp_path: Path, name: str, packed: bool) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(b"content") if packed else b"content")
    with open_file(path) as stream:
        assert read_up_to(stream, 100) == b"content"


def test_damaged_and_missing_files_are_data_errors(tmp_path: Path) -> None:
    packed = gzip.compress(bytes(range(256)) * 8)
    (tmp_path / "cut").write_bytes(packed[:-9])
    (tmp_path / "changed").write_bytes(packed[:12] + bytes(4) + packed[16:])
    with pytest.raises(DataError, match="truncated"), open_file(tmp_path / "cut") as stream:
        read_up_to(stream, 10_000)
    with pytest.raises(DataError, match="cannot be read"), open_file(tmp_path / "changed") as stream:
        read_up_to(stream, 10_000)
    with pytest.raises(DataError, match="no file"), open_file(tmp_path / "missing"):
        pass


@given(content=st.binary(max_size=50), size=st.integers(0, 60))
def test_no_more_is_read_than_asked_for(content: bytes, size: int) -> None:
    assert read_up_to(io.BytesIO(content), size) == content[:size]


@given(length=st.integers(0, 30), limit=st.integers(0, 30))
def test_a_limited_stream_ends_in_an_error_beyond_its_limit(length: int, limit: int) -> None:
    stream = LimitedStream(io.BytesIO(bytes(length)), limit, "bomb")
    if length <= limit:
        assert stream.read() == bytes(length)
        assert stream.read() == b""
    else:
        with pytest.raises(DataError, match="bomb unpacks to more than"):
            stream.read()
