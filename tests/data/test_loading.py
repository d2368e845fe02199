"""exhume.load on bundled and on made-up sources."""

from pathlib import Path

import numpy as np
import pytest
import torch

from exhume.core.errors import DataError
from exhume.data import load
from exhume.records import Dataset


def rows(inputs: torch.Tensor) -> set[bytes]:
    return {row.numpy().tobytes() for row in inputs}


@pytest.mark.parametrize("name", ["digits", "faces", "breast-cancer"])
def test_bundled_sources_load_as_balanced_disjoint_sets(name: str) -> None:
    data = load(name, size=40, seed=3)
    assert len(data.train) == len(data.holdout) == 40
    assert data.train.inputs.dtype == torch.float32
    assert torch.bincount(data.train.labels).tolist() == [40 // len(data.classes)] * len(data.classes)
    assert torch.equal(torch.bincount(data.train.labels), torch.bincount(data.holdout.labels))
    assert data.test is not None
    assert not rows(data.train.inputs) & rows(data.holdout.inputs)
    assert not (rows(data.train.inputs) | rows(data.holdout.inputs)) & rows(data.test.inputs)


def test_grey_images_are_centred_by_one_number_and_stay_in_pixel_units() -> None:
    data = load("digits", size=30)
    assert data.bounds == (0.0, 1.0)
    assert data.train.inputs.min() == 0
    assert data.train.inputs.max() == 1
    assert data.offset is not None
    assert data.offset.shape == (1, 1, 1)
    assert abs(float(data.to_model(data.train.inputs).mean())) < 1e-6
    assert load("digits", size=30, centre=False).offset is None


def test_colour_images_are_centred_channel_by_channel(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (12, 6, 5, 3), dtype=np.uint8)
    x[..., 1] //= 4
    np.savez(tmp_path / "mine.npz", x=x, y=np.arange(12) % 2)
    data = load(tmp_path / "mine.npz", size=4)
    assert data.name == "mine"
    assert data.offset is not None
    assert data.offset.shape == (3, 1, 1)
    torch.testing.assert_close(data.to_model(data.train.inputs).mean(dim=(0, 2, 3)), torch.zeros(3), atol=1e-6, rtol=0)


def test_one_seed_is_one_draw_and_two_seeds_are_two() -> None:
    first, again, other = (load("digits", classes="odd-even", size=50, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert rows(first.train.inputs) != rows(other.train.inputs)
    assert first.name == "digits odd-even"


def test_a_smaller_size_lies_within_a_larger_one() -> None:
    small, large = (load("digits", classes="odd-even", size=size) for size in (20, 100))
    assert rows(small.train.inputs) <= rows(large.train.inputs)
    assert rows(small.holdout.inputs) <= rows(large.holdout.inputs)


def test_the_test_set_is_the_rest_or_the_requested_number() -> None:
    assert len(load("digits", size=100).test or ()) == 1797 - 200
    assert len(load("digits", size=100, test=60).test or ()) == 60
    assert load("digits", size=100, test=0).test is None
    with pytest.raises(DataError, match="1597 examples left to test on, not 1598"):
        load("digits", size=100, test=1598)
    with pytest.raises(DataError, match="-1 examples"):
        load("digits", test=-1)


def test_the_whole_published_test_split_is_used_with_the_labels_of_the_task(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x, x_test = (random.integers(0, 256, (n, 4, 4), dtype=np.uint8) for n in (30, 6))
    np.savez(tmp_path / "mine.npz", x=x, y=np.arange(30) % 3, x_test=x_test, y_test=[0, 1, 2, 2, 1, 0])
    data = load(tmp_path / "mine.npz", classes=(2, 0), size=4)
    assert data.test is not None
    assert data.test.labels.tolist() == [1, 0, 0, 1]
    torch.testing.assert_close(data.test.inputs[:, 0], torch.tensor(x_test[[0, 2, 3, 5]]) / 255)
    assert data.name == "mine 2-0"


def test_copies_are_never_in_both_training_and_hold_out_set(tmp_path: Path) -> None:
    """Every image four times over: the held-out ones must still be others than the training ones."""
    x = np.repeat(np.random.default_rng(0).integers(0, 256, (12, 4, 4), dtype=np.uint8), 4, axis=0)
    np.savez(tmp_path / "mine.npz", x=x, y=np.repeat(np.arange(12) % 2, 4))
    data = load(tmp_path / "mine.npz")
    assert len(data.train) == len(rows(data.train.inputs)) == 6
    assert not rows(data.train.inputs) & rows(data.holdout.inputs)
    assert data.test is None


def test_a_csv_file_loads_by_its_label_column(tmp_path: Path) -> None:
    lines = ["a,target,b"] + [f"{i},{'yes' if i % 2 else 'no'},{i * i}" for i in range(12)]
    (tmp_path / "table.csv").write_text("\n".join(lines))
    data = load(str(tmp_path / "table.csv"), label="target", size=4)
    assert data.classes == ("no", "yes")
    assert data.features == ("a", "b")
    assert data.input_shape == (2,)


def test_flat_pixels_are_centred_by_one_number(tmp_path: Path) -> None:
    np.savez(tmp_path / "flat.npz", x=np.random.default_rng(0).integers(0, 256, (8, 9), dtype=np.uint8), y=[0, 1] * 4)
    data = load(tmp_path / "flat.npz")
    assert data.input_shape == (9,)
    assert data.offset is not None
    assert data.offset.shape == (1,)


def test_a_single_class_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", x=np.zeros((4, 3, 3), dtype=np.uint8), y=np.zeros(4, dtype=int))
    with pytest.raises(DataError, match="only one class, '0'"):
        load(tmp_path / "one.npz")


def test_a_loaded_data_set_survives_saving(tmp_path: Path) -> None:
    data = load("faces", size=10)
    data.save(tmp_path / "data.safetensors")
    assert Dataset.load(tmp_path / "data.safetensors") == data
