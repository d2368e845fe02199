"""Untrusted tar archives."""

import contextlib
import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.core.errors import DataError
from exhume.data.archives import unpack

LIMIT = 2**20


def member(
    name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, target: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = len(content), kind, target
    return info, content


def tar(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return path


def files_under(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_wanted_files_are_unpacked_into_one_folder_and_others_are_not(tmp_path: Path) -> None:
    archive = tar(
        tmp_path / "good.tar.gz",
        member("batches", kind=tarfile.DIRTYPE),
        member("batches/a.bin", b"A" * 1000),
        member("batches/readme.html", b"hello"),
        member("batches/b.bin", b"B"),
    )
    unpack(archive, tmp_path / "into", wanted=("a.bin", "b.bin"), limit=LIMIT)
    assert files_under(tmp_path / "into") == ["a.bin", "b.bin"]
    assert (tmp_path / "into" / "a.bin").read_bytes() == b"A" * 1000


@pytest.mark.parametrize(
    "bad",
    [
        member("../a.bin", b"x"),
        member("batches/../../a.bin", b"x"),
        member("/etc/a.bin", b"x"),
        member("a.bin", kind=tarfile.SYMTYPE, target="/etc/passwd"),
        member("a.bin", kind=tarfile.LNKTYPE, target="../secret"),
        member("a.bin", kind=tarfile.FIFOTYPE),
        member("a.bin", kind=tarfile.CHRTYPE),
        member("link", kind=tarfile.SYMTYPE, target="/"),
        member("a.bin", bytes(LIMIT + 1)),
    ],
    ids=lambda bad: f"{bad[0].name}-{bad[0].type.decode()}-{bad[0].size}",
)
@pytest.mark.parametrize("position", [0, 1])
def test_a_bad_member_anywhere_refuses_the_whole_archive(
    tmp_path: Path, bad: tuple[tarfile.TarInfo, bytes], position: int
) -> None:
    good = member("b.bin", b"good")
    archive = tar(tmp_path / "bad.tar.gz", *((bad, good) if position == 0 else (good, bad)))
    with pytest.raises(DataError, match=r"not unpacked|more than"):
        unpack(archive, tmp_path / "into", wanted=("a.bin", "b.bin"), limit=LIMIT)
    assert files_under(tmp_path) == ["bad.tar.gz"]


def huge_comment(path: Path) -> None:
    """An extended header of half a gigabyte, which tarfile reads into memory before it returns a member."""
    info = tarfile.TarInfo("././@PaxHeader")
    info.size, info.type = 2**29, tarfile.XHDTYPE
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(info.tobuf(tarfile.USTAR_FORMAT))
        file.write(bytes(64 * LIMIT))


def many_empty_files(path: Path) -> None:
    tar(path, *(member(f"{index}.txt") for index in range(5_000)))


def declared_but_absent(path: Path) -> None:
    info = tarfile.TarInfo("a.bin")
    info.size = 2**40
    with gzip.open(path, "wb") as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT))


@pytest.mark.parametrize("bomb", [huge_comment, many_empty_files, declared_but_absent])
def test_decompression_bombs_are_stopped_at_the_limit(tmp_path: Path, bomb: Callable[[Path], None]) -> None:
    bomb(tmp_path / "bomb.tar.gz")
    with pytest.raises(DataError, match="more than 1,048,576 bytes"):
        unpack(tmp_path / "bomb.tar.gz", tmp_path / "into", wanted=("a.bin",), limit=LIMIT)
    assert files_under(tmp_path) == ["bomb.tar.gz"]


def test_missing_and_repeated_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"does not contain a\.bin"):
        unpack(tar(tmp_path / "1.tar.gz", member("b.bin")), tmp_path / "into", wanted=("a.bin",), limit=LIMIT)
    twice = tar(tmp_path / "2.tar.gz", member("x/a.bin", b"1"), member("y/a.bin", b"2"))
    with pytest.raises(DataError, match=r"a\.bin twice"):
        unpack(twice, tmp_path / "into", wanted=("a.bin",), limit=LIMIT)


@settings(max_examples=100)
@given(data=st.data())
def test_a_damaged_archive_gives_the_files_or_a_data_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for info, content in (member("batches/a.bin", b"A" * 700), member("b.bin", b"B" * 10)):
            archive.addfile(info, io.BytesIO(content))
    content = bytearray(plain.getvalue()[:4096])
    for position in data.draw(st.lists(st.integers(0, 2500), max_size=6)):
        content[position] = data.draw(st.integers(0, 255))
    packed = bytearray(gzip.compress(bytes(content), mtime=0))
    if data.draw(st.booleans()):
        del packed[data.draw(st.integers(0, len(packed) - 1)) :]
    (folder / "any.tar.gz").write_bytes(packed)
    with contextlib.suppress(DataError):
        unpack(folder / "any.tar.gz", folder / "into", wanted=("a.bin",), limit=LIMIT)
        assert files_under(folder / "into") == ["a.bin"]
        return
    assert files_under(folder) == ["any.tar.gz"]
