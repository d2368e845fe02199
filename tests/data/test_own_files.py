"""Data for a user's own model, in the units that the model takes."""

from pathlib import Path

import numpy as np
import pytest
import torch

from exhume.core.errors import DataError
from exhume.data.own_files import read_own_files


def saved(path: Path, x: np.ndarray, y: object) -> Path:
    np.savez(path, x=x, y=np.asarray(y))
    return path


PICTURES = np.random.default_rng(0).random((4, 1, 3, 3)).astype(np.float32)


def test_inputs_and_labels_are_read_in_the_units_of_the_model(tmp_path: Path) -> None:
    train = saved(tmp_path / "a.npz", PICTURES, [0, 2, 2, 0])
    holdout = saved(tmp_path / "b.npz", 1 - PICTURES[:2], [1, 0])
    data = read_own_files(train, holdout, input_shape=(1, 3, 3), bounds=(0.0, 1.0))
    assert torch.equal(data.train.inputs, torch.from_numpy(PICTURES))
    assert data.train.labels.tolist() == [0, 2, 2, 0], "indices stay those of the model's outputs"
    assert data.classes == ("0", "1", "2")
    assert data.name == "a"
    assert len(data.holdout) == 2


def test_an_offset_is_added_back(tmp_path: Path) -> None:
    file = saved(tmp_path / "a.npz", PICTURES - 0.5, [0, 1, 0, 1])
    offset = torch.tensor([0.5]).reshape(1, 1, 1)
    data = read_own_files(file, None, input_shape=(1, 3, 3), bounds=(0.0, 1.0), offset=offset)
    assert torch.allclose(data.train.inputs, torch.from_numpy(PICTURES))
    assert torch.allclose(data.to_model(data.train.inputs), torch.from_numpy(PICTURES - 0.5))
    assert len(data.holdout) == 0


def test_bytes_are_pixels_where_the_range_is_one(tmp_path: Path) -> None:
    file = saved(tmp_path / "a.npz", np.full((2, 3, 3), 255, np.uint8), [0, 1])
    one = read_own_files(file, None, input_shape=(1, 3, 3), bounds=(0.0, 1.0))
    assert one.train.inputs.shape == (2, 1, 3, 3)
    assert one.train.inputs.max() == 1
    assert read_own_files(file, None, input_shape=(1, 3, 3), bounds=(0.0, 255.0)).train.inputs.max() == 255


@pytest.mark.parametrize(
    ("y", "classes", "labels"),
    [
        ([-1, 1, 1, -1], ("-1", "1"), [0, 1, 1, 0]),
        (["dog", "cat", "cat", "dog"], ("cat", "dog"), [1, 0, 0, 1]),
        ([1.0, 0.0, 1.0, 0.0], ("0", "1"), [1, 0, 1, 0]),
        ([[1], [0], [1], [0]], ("0", "1"), [1, 0, 1, 0]),
        ([0.5, 0.25, 1.5, 2.0], ("",), [0, 0, 0, 0]),
        ([10**9, 5, 5, 5], ("5", "1000000000"), [1, 0, 0, 0]),
        ([0, 0, 0, 0], ("0", "1"), [0, 0, 0, 0]),
    ],
)
def test_labels_of_every_kind(y: object, classes: tuple[str, ...], labels: list[int], tmp_path: Path) -> None:
    data = read_own_files(saved(tmp_path / "a.npz", PICTURES, y), None, input_shape=(1, 3, 3), bounds=None)
    assert (data.classes, data.train.labels.tolist()) == (classes, labels)


@pytest.mark.parametrize(
    ("x", "y", "word"),
    [
        (PICTURES, [0, 1, 0], "one label per input"),
        (PICTURES.astype("U5"), [0, 1, 0, 1], "must hold numbers"),
        (PICTURES[:0], [], "no examples"),
    ],
)
def test_bad_files_are_refused_with_the_reason(x: np.ndarray, y: object, word: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=word):
        read_own_files(saved(tmp_path / "a.npz", x, y), None, input_shape=(1, 3, 3), bounds=(0.0, 1.0))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="There is no file"):
        read_own_files(tmp_path / "a.npz", None, input_shape=(1, 3, 3), bounds=None)


def test_inputs_that_do_not_fit_the_model_are_left_as_they_are_for_the_audit_to_refuse(tmp_path: Path) -> None:
    offset = torch.tensor([0.5]).reshape(1, 1, 1)
    for inputs in (PICTURES * 255, PICTURES[:, :, :2], PICTURES.reshape(4, 9)):
        file = saved(tmp_path / "a.npz", inputs, [0, 1, 0, 1])
        data = read_own_files(file, file, input_shape=(1, 3, 3), bounds=(0.0, 1.0), offset=offset)
        assert data.train.inputs.shape == inputs.shape
