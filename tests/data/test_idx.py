"""IDX files: complete files are read exactly, and damaged files raise DataError and nothing else."""

import gzip
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.core.errors import DataError
from exhume.data.idx import CLOTHES, DIGITS, read_idx, read_mnist

quick = settings(max_examples=60)


def idx_bytes(shape: tuple[int, ...], body: bytes) -> bytes:
    return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + body


@st.composite
def idx_files(draw: st.DrawFn) -> tuple[tuple[int, ...], bytes, bytes]:
    """A shape, the values, and the file that holds them, plain or gzip."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    size = torch.Size(shape).numel()
    body = draw(st.binary(min_size=size, max_size=size))
    content = idx_bytes(shape, body)
    return shape, body, gzip.compress(content) if draw(st.booleans()) else content


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("idx") / "some-idx-ubyte"


@quick
@given(file=idx_files())
def test_values_are_read_exactly(path: Path, file: tuple[tuple[int, ...], bytes, bytes]) -> None:
    shape, body, content = file
    path.write_bytes(content)
    values = read_idx(path, len(shape))
    assert values.shape == shape
    assert values.dtype == torch.uint8
    assert values.numpy().tobytes() == body


@quick
@given(file=idx_files(), data=st.data())
def test_truncation_at_any_byte_is_a_data_error(
    path: Path, file: tuple[tuple[int, ...], bytes, bytes], data: st.DataObject
) -> None:
    shape, _, content = file
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(DataError):
        read_idx(path, len(shape))


@quick
@given(content=st.binary(max_size=200) | st.binary(max_size=200).map(lambda tail: b"\x1f\x8b\x08" + tail))
def test_random_bytes_are_a_data_error_or_a_true_idx_file(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    try:
        values = read_idx(path, 3)
    except DataError:
        return
    assert content.startswith((bytes([0, 0, 8, 3]), b"\x1f\x8b"))
    assert values.ndim == 3


def test_surplus_bytes_are_refused(path: Path) -> None:
    path.write_bytes(idx_bytes((2,), b"abc"))
    with pytest.raises(DataError, match="more than the 2 values"):
        read_idx(path, 1)


def test_a_wrong_magic_number_is_named(path: Path) -> None:
    path.write_bytes(idx_bytes((2, 2), b"abcd"))
    with pytest.raises(DataError, match="begins with 00000802, not 00000803"):
        read_idx(path, 3)


def test_a_gzip_bomb_is_unpacked_no_further_than_its_header_declares(path: Path) -> None:
    path.write_bytes(gzip.compress(idx_bytes((4,), b"abcd") + bytes(200 * 2**20), compresslevel=1))
    import tracemalloc

    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="more than the 4 values"):
            read_idx(path, 1)
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shape", [(2**32 - 1, 2**32 - 1, 2**32 - 1), (0, 28, 28)])
def test_absurd_declared_sizes_are_refused_before_reading(path: Path, shape: tuple[int, ...]) -> None:
    path.write_bytes(idx_bytes(shape, b""))
    with pytest.raises(DataError, match="no data set of this kind"):
        read_idx(path, 3)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"There is no file at .*nothing-here"):
        read_idx(tmp_path / "nothing-here", 3)


def mnist_files(folder: Path, *, side: int = 28, images: int = 2, labels: bytes = b"\x00\x01") -> dict[str, Path]:
    files = {}
    for split in ("train", "t10k"):
        for kind, content in (
            ("images-idx3", idx_bytes((images, side, side), bytes(images * side * side))),
            ("labels-idx1", idx_bytes((len(labels),), labels)),
        ):
            files[f"{split}-{kind}-ubyte"] = folder / f"{split}-{kind}-ubyte"
            files[f"{split}-{kind}-ubyte"].write_bytes(content)
    return files


def test_mnist_images_are_bytes_with_one_channel(tmp_path: Path) -> None:
    source = read_mnist(mnist_files(tmp_path), "mnist", DIGITS)
    assert source.train.inputs.shape == (2, 1, 28, 28)
    assert source.test is not None
    assert source.test.labels.tolist() == [0, 1]
    assert len(CLOTHES) == 10


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"side": 27}, "27 x 27"), ({"labels": b"\x00\x0a"}, "label 10"), ({"images": 3}, "3 images but .* 2 labels")],
)
def test_files_that_are_not_mnist_are_refused(tmp_path: Path, wrong: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_mnist(mnist_files(tmp_path, **wrong), "mnist", DIGITS)
