"""NumPy archives."""

import contextlib
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.core.errors import DataError
from exhume.data.npz_files import read_npz

RANDOM = np.random.default_rng(0)


def save(folder: Path, **arrays: np.ndarray) -> Path:
    path = folder / "mine.npz"
    np.savez_compressed(path, **arrays)
    return path


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((6, 5, 4), (6, 1, 5, 4)),
        ((6, 3, 5, 4), (6, 3, 5, 4)),
        ((6, 5, 4, 3), (6, 3, 5, 4)),
        ((6, 5, 4, 1), (6, 1, 5, 4)),
        ((6, 20), (6, 20)),
    ],
)
def test_bytes_are_images_in_any_order_of_axes(
    tmp_path: Path, shape: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    x = RANDOM.integers(0, 256, shape, dtype=np.uint8)
    source = read_npz(save(tmp_path, x=x, y=np.arange(6) % 2))
    assert source.train.inputs.shape == expected
    assert source.bounds == (0.0, 1.0)
    if shape[-1] == 3:
        assert int(source.train.inputs[1, 2, 3, 1]) == x[1, 3, 1, 2]


def test_floats_in_the_unit_range_are_images_and_two_axes_are_a_table(tmp_path: Path) -> None:
    images = read_npz(save(tmp_path, x=RANDOM.random((4, 3, 3)), y=np.array(["b", "a", "b", "a"])))
    assert images.bounds == (0.0, 1.0)
    assert images.classes == ("a", "b")
    assert images.train.labels.tolist() == [1, 0, 1, 0]
    table = read_npz(save(tmp_path, x=RANDOM.normal(5, 3, (50, 4)), y=np.arange(50)[:, None] % 2))
    assert table.bounds is None
    assert table.train.inputs.mean(dim=0).abs().max() < 1e-6


def test_a_test_split_shares_classes_and_scale(tmp_path: Path) -> None:
    x = RANDOM.normal(5, 3, (50, 4))
    source = read_npz(
        save(tmp_path, x_train=x, y_train=np.arange(50) % 3 + 7.0, x_test=x[:5], y_test=np.arange(5) % 3 + 7)
    )
    assert source.classes == ("7", "8", "9")
    assert source.test is not None
    torch.testing.assert_close(source.test.inputs, source.train.inputs[:5])
    assert source.test.labels.tolist() == [0, 1, 2, 0, 1]


BYTES = np.zeros((4, 3, 3), dtype=np.uint8)
LABELS = np.array([0, 1, 0, 1])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": BYTES}, "must contain an array x.* it contains images"),
        ({"x": BYTES, "y": LABELS[:3]}, "4 inputs but 3 labels"),
        ({"x": BYTES, "y": LABELS + 0.5}, "whole numbers or names"),
        ({"x": BYTES, "y": np.zeros((4, 2))}, "one label per example"),
        ({"x": BYTES[0, 0], "y": LABELS}, "table .* or images"),
        ({"x": BYTES[:0], "y": LABELS[:0]}, "one label per example"),
        ({"x": BYTES.astype(float) + np.nan, "y": LABELS}, "NaN"),
        ({"x": np.full((4, 2), 1e300), "y": LABELS}, "infinite"),
        ({"x": BYTES.astype(complex), "y": LABELS}, "must hold numbers"),
        ({"x": BYTES + 128.0, "y": LABELS}, "scale them to"),
        ({"x": np.zeros((4, 5, 5, 5), dtype=np.uint8), "y": LABELS}, "one or three channels"),
        ({"x": BYTES, "y": LABELS, "x_test": BYTES[:, :2], "y_test": LABELS}, "another shape"),
        ({"x": BYTES, "y": LABELS, "x_test": BYTES, "y_test": LABELS + 1}, "label '2'"),
    ],
)
def test_bad_files_are_refused_with_the_reason(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_npz(save(tmp_path, **arrays))


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="pickled Python objects"):
        read_npz(save(tmp_path, x=np.array([{"a": 1}, print], dtype=object), y=np.array([0, 1])))


def test_a_declared_shape_larger_than_the_file_allocates_no_memory(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (10**15, 1)})
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", header.getvalue())
        archive.writestr("y.npy", header.getvalue())
    with pytest.raises(DataError, match="the limit is"):
        read_npz(path)


@settings(max_examples=150)
@given(data=st.data())
def test_a_damaged_archive_is_an_archive_or_a_data_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp()
    content = bytearray(save(folder, x=BYTES, y=LABELS).read_bytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        for position in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
            content[position] = data.draw(st.integers(0, 255))
    path = folder / "damaged.npz"
    path.write_bytes(content)
    with contextlib.suppress(DataError):
        assert len(read_npz(path).train) == 4


@settings(max_examples=150)
@given(
    header=st.binary(max_size=80)
    | st.text(alphabet="{}'descrfortanshape:|u1<f8,()TrueFals[]\\n ", max_size=80).map(str.encode)
)
def test_a_strange_array_header_is_a_data_error(tmp_path_factory: pytest.TempPathFactory, header: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "strange.npz"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", content)
        archive.writestr("y.npy", content)
    with pytest.raises(DataError):
        read_npz(path)
