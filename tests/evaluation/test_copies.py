"""Copies of training examples: planted ones are found, and nothing else is."""

from dataclasses import replace

import pytest
import torch

from exhume import Split, load
from exhume.core.errors import DataError
from exhume.evaluation.copies import find_copies


@pytest.fixture(scope="module")
def digits():
    return load("digits", classes="odd-even", size=200, seed=0)


def posing_as(data, inputs):
    return replace(data, train=Split(inputs=inputs, labels=torch.zeros(len(inputs), dtype=torch.long)))


def test_planted_copies_are_found_and_nothing_else(digits):
    generator = torch.Generator().manual_seed(0)
    averages = torch.stack([digits.train.inputs[i::8].mean(0) for i in range(8)])
    copied = digits.train.inputs[[3, 70, 101]] + 0.01 * torch.randn(3, 1, 8, 8, generator=generator)
    found = find_copies(posing_as(digits, torch.cat([averages, copied])), digits)
    assert sorted(map(tuple, found.pairs.tolist())) == [(8, 3), (9, 70), (10, 101)]
    assert found.copied == 3
    assert not found.is_safe
    assert found.nearest[8:].tolist() == [3, 70, 101]


def test_one_copy_is_counted_as_one(digits):
    averages = torch.stack([digits.train.inputs[i::8].mean(0) for i in range(8)])
    found = find_copies(posing_as(digits, torch.cat([averages, digits.train.inputs[3:4]])), digits)
    assert found.sentence.startswith("1 of 9 distilled examples is a copy of 1 training example. ")


def test_averages_and_held_out_images_are_no_copies(digits):
    averages = torch.stack([digits.train.inputs[i::8].mean(0) for i in range(8)])
    found = find_copies(posing_as(digits, averages), digits)
    assert found.copied == 0
    assert found.is_safe
    held_out = find_copies(posing_as(digits, digits.holdout.inputs[:10].clone()), digits)
    assert held_out.copied == 0
    assert held_out.held_out_copies == 10


def test_many_noisy_copies_are_detected_beyond_chance(digits):
    generator = torch.Generator().manual_seed(0)
    blurred = digits.train.inputs[:40] + 0.15 * torch.randn(40, 1, 8, 8, generator=generator)
    found = find_copies(posing_as(digits, blurred), digits)
    assert found.copied == 0
    assert found.chance < 1e-3
    assert not found.is_safe
    assert "chance gives as many with probability" in found.sentence
    assert found.to_json()["betrayed_examples"] == found.betrayed > 10


def test_copies_with_damaged_pixels_are_found(digits):
    generator = torch.Generator().manual_seed(0)
    spoilt = digits.train.inputs[:5].clone()
    where = torch.rand(5, 64, generator=generator).argsort(1) < 4
    spoilt.view(5, 64)[where] += 0.45
    averages = torch.stack([digits.train.inputs[i::8].mean(0) for i in range(8)])
    found = find_copies(posing_as(digits, torch.cat([averages, spoilt])), digits)
    assert found.copied == 0
    assert {tuple(pair) for pair in found.shown.tolist()} <= {(8 + i, i) for i in range(5)}
    assert len(found.shown) >= 3
    assert found.held_out_shown == 0
    assert not found.is_safe
    assert "through noise" in found.sentence


def test_without_held_out_examples_no_set_is_called_safe(digits):
    alone = replace(digits, holdout=Split(inputs=digits.holdout.inputs[:0], labels=digits.holdout.labels[:0]))
    found = find_copies(posing_as(alone, alone.train.inputs[:3]), alone)
    assert not found.is_safe
    assert "no hold-out set" in found.sentence


def test_other_shapes_are_refused(digits):
    with pytest.raises(DataError, match="cannot be copies"):
        find_copies(load("faces", size=20), digits)


def test_a_faint_image_is_no_copy_of_a_faint_example(digits):
    mean = digits.train.inputs.mean(0)
    inputs = digits.train.inputs.clone()
    inputs[:6] = mean + 0.2 * (inputs[:6] - mean)
    data = replace(digits, train=replace(digits.train, inputs=inputs))
    nothing = mean + 0.02 * torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    blank = find_copies(posing_as(data, nothing), data)
    assert (blank.copied, len(blank.shown)) == (0, 0)
    truly = find_copies(posing_as(data, torch.cat([nothing, inputs[:3] + 0.001])), data)
    assert sorted(map(tuple, truly.pairs.tolist())) == [(6, 0), (7, 1), (8, 2)]
