"""Data sets: parts that belong together, shapes, and offsets."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from exhume.core.errors import DataError, RecordError
from exhume.core.storage import save_bundle
from exhume.records import Dataset, Split


def test_parts_of_different_lengths_are_refused(path: Path) -> None:
    values = {"name": "made up", "classes": ["a", "b"], "bounds": None, "features": None}
    good = {"train/inputs": torch.zeros(3, 2), "train/labels": torch.zeros(3).long()}
    parts = good | {"holdout/inputs": torch.zeros(3, 2), "holdout/labels": torch.zeros(2).long()}
    save_bundle(path, "dataset", values, parts)
    with pytest.raises(RecordError, match="3 inputs but 2 labels"):
        Dataset.load(path)
    save_bundle(path, "dataset", values, good)
    with pytest.raises(RecordError, match="inputs"):
        Dataset.load(path)


def make_dataset(classes: int, **changes: Any) -> Dataset:
    few = Split(inputs=torch.rand(4, 2, 3), labels=torch.arange(4) % classes)
    fields = {"name": "", "train": few, "holdout": few, "classes": tuple("abcd"[:classes]), "bounds": None}
    return Dataset(**fields | changes)


def test_two_classes_have_one_output_and_soft_targets_decide_where_there_are_some() -> None:
    assert make_dataset(2).outputs == 1
    assert make_dataset(3).outputs == 3
    few = make_dataset(2).train
    soft = Split(inputs=few.inputs, labels=few.labels, targets=torch.zeros(4, 5))
    assert make_dataset(2, train=soft).outputs == 5


def test_the_offset_is_subtracted_for_the_network() -> None:
    data = make_dataset(2, offset=torch.full((2, 1), 0.25))
    assert data.input_shape == (2, 3)
    torch.testing.assert_close(data.to_model(data.train.inputs), data.train.inputs - 0.25)
    assert make_dataset(2).to_model(data.train.inputs) is data.train.inputs


def test_chosen_examples_keep_their_labels_and_soft_targets() -> None:
    split = Split(inputs=torch.arange(8.0).reshape(4, 2), labels=torch.arange(4), targets=torch.arange(4.0)[:, None])
    for chosen, places in ((torch.tensor([2, 0]), [2, 0]), (slice(3), [0, 1, 2]), (slice(0), [])):
        taken = split.take(chosen)
        assert taken.labels.tolist() == places
        assert torch.equal(taken.inputs, split.inputs[places])
        assert taken.targets is not None
        assert taken.targets[:, 0].tolist() == places


class TestArrays:
    def test_arrays_become_a_data_set(self):
        train, holdout = np.random.default_rng(0).random((2, 6, 1, 4, 4))
        data = Dataset.from_arrays(train, holdout, labels=[0, 1, 2, 0, 1, 2], holdout_labels=np.zeros(6))
        assert (len(data.train), len(data.holdout), data.input_shape) == (6, 6, (1, 4, 4))
        assert data.classes == ("0", "1", "2")
        assert data.train.inputs.dtype == torch.float32
        assert data.train.labels.tolist() == [0, 1, 2, 0, 1, 2]

    def test_labels_and_a_hold_out_set_are_optional(self):
        data = Dataset.from_arrays(torch.rand(3, 5).double(), bounds=None)
        assert data.classes == ("",)
        assert len(data.holdout) == 0
        assert Dataset.from_arrays(torch.rand(3, 5), torch.rand(2, 5), labels=[0, 1, 0]).classes == ("",)

    def test_what_was_subtracted_is_added_back(self):
        data = Dataset.from_arrays(torch.zeros(2, 1, 2, 2), offset=torch.full((1, 1, 1), 0.25))
        assert bool((data.train.inputs == 0.25).all())
        assert bool((data.to_model(data.train.inputs) == 0).all())

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"train": [["a", "b"]]}, "array of numbers"),
            ({"train": torch.rand(5)}, "first index"),
            ({"train": torch.rand(5, 3), "holdout": torch.rand(5, 4)}, "have shape"),
            ({"train": torch.rand(5, 3), "labels": [0, 1]}, "class index"),
            ({"train": torch.rand(2, 3), "labels": [0.5, 1.0]}, "class index"),
        ],
    )
    def test_arrays_that_do_not_fit_are_refused(self, arguments, message):
        with pytest.raises(DataError, match=message):
            Dataset.from_arrays(**arguments)
