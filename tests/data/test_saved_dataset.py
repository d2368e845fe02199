"""Saved data sets load unchanged, or are refused in one sentence."""

from dataclasses import replace

import pytest
import torch

from exhume import load
from exhume.core.errors import DataError, ExhumeError


@pytest.fixture
def digits():
    return load("digits", classes="odd-even", size=8, test=5)


def test_a_saved_data_set_loads_from_its_file_and_its_folder(digits, tmp_path):
    digits.save(tmp_path / "data.safetensors")
    assert load(tmp_path / "data.safetensors") == digits
    assert load(str(tmp_path)) == digits
    assert load(tmp_path, seed=7) == digits
    assert len(load(tmp_path, test=3).test) == 3
    assert load(tmp_path, test=0).test is None


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"size": 4}, "omit size"),
        ({"classes": "all"}, "omit classes"),
        ({"centre": False}, "omit centre"),
        ({"test": 6}, "5 test examples"),
    ],
)
def test_another_draw_is_refused(settings, sentence, digits, tmp_path):
    digits.save(tmp_path / "data.safetensors")
    with pytest.raises(DataError, match=sentence):
        load(tmp_path, **settings)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda split: replace(split, inputs=split.inputs * torch.nan), "NaN or infinite"),
        (lambda split: replace(split, labels=split.labels + 5), "outside of its 2 classes"),
        (lambda split: replace(split, inputs=split.inputs[:0], labels=split.labels[:0]), "no training examples"),
        (lambda split: replace(split, inputs=split.inputs[..., :4]), "holds inputs of shape"),
    ],
)
def test_data_that_cannot_be_trained_on_is_refused(spoil, sentence, digits, tmp_path):
    replace(digits, train=spoil(digits.train)).save(tmp_path / "data.safetensors")
    with pytest.raises(DataError, match=sentence):
        load(tmp_path)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(DataError, match="no file"):
        load(tmp_path / "nothing.safetensors")
    (tmp_path / "torn.safetensors").write_bytes(b"not a bundle")
    with pytest.raises(ExhumeError):
        load(tmp_path / "torn.safetensors")
