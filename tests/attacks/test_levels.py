"""Proofs by levels: true inputs are proven, and nothing else is."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from exhume.attacks.levels import are_pinned, find_levels, log_p_levels, prove_by_levels
from exhume.records import AttackerView, Outcome, Reconstruction


def images(count, steps=255, values=200, seed=0):
    """Return images with even levels, half of their values at the lower end."""
    generator = torch.Generator().manual_seed(seed)
    levels = torch.randint(0, steps + 1, (count, values), generator=generator).double()
    return levels * (torch.rand(count, values, generator=generator) < 0.5) / steps


def noise(like, size, seed=1):
    return size * torch.randn(like.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_bound_holds_for_uniform_values():
    generator = torch.Generator().manual_seed(0)
    values = torch.rand(20_000, 4, generator=generator, dtype=torch.float64)
    log_p = log_p_levels(values, steps=50)
    for level in (0.1, 0.01):
        assert float((log_p < math.log(level)).double().mean()) <= level * 1.2


def test_the_bound_is_the_volume_of_a_ball():
    # Three values, each a tenth of half a step away from its level.
    values = (torch.tensor([[3.0, 7.0, 12.0]], dtype=torch.float64) + 0.05) / 20
    expected = math.log(4 / 3 * math.pi * (3 * 0.1**2) ** 1.5 / 8)
    assert float(log_p_levels(values, steps=20)) == pytest.approx(expected)


def test_values_of_a_background_count_once():
    few = torch.tensor([[0.2, 0.6]], dtype=torch.float64) + 1e-3
    many = few.repeat(1, 100)
    assert float(log_p_levels(many, steps=5)) == pytest.approx(float(log_p_levels(few, steps=5)))


def test_no_more_values_count_than_a_wrong_input_has_freedom():
    inputs = images(3) + noise(images(3), 1e-5)
    log_p = [log_p_levels(inputs, free) for free in (2, 8, 32, None)]
    assert all(bool((more < less).all()) for less, more in itertools.pairwise(log_p))


def test_true_inputs_are_proven_and_rounded():
    inputs = images(6)
    found = find_levels(inputs + noise(inputs, 1e-5), 1e-3, free=20)
    assert found.is_proven.all()
    torch.testing.assert_close(found.nearest, inputs)


@given(st.integers(0, 1000), st.floats(0.02, 0.98), st.integers(2, 12))
def test_mixtures_are_never_proven(seed, part, count):
    inputs = images(count, seed=seed)
    weights = torch.rand(count, count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    weights = (1 - part) * torch.eye(count, dtype=torch.float64) + part * weights / weights.sum(dim=1, keepdim=True)
    found = find_levels(weights @ inputs, 1e-3, free=max(count - 1, 1))
    assert not found.is_proven.any()


@pytest.mark.parametrize("part", [1 / 2, 1 / 3, 2 / 15, 7 / 255])
def test_fractions_with_small_denominators_are_not_proven(part):
    inputs = images(4)  # mixtures that solve equations in whole numbers have such weights
    wrong = inputs[0] + part * (inputs[1] - inputs[0])
    assert not find_levels(wrong[None], 1e-3).is_proven.any()


@pytest.mark.parametrize("scale", [255 / 256, 255 / 254, 254 / 255, 0.9])
def test_scaled_images_are_not_proven(scale):
    dark = 0.99 * images(4, steps=240).clamp(max=0.9)
    levels = (255 * dark).round() / 255  # a black input among the others makes any scale possible
    assert find_levels(levels, 1e-3).is_proven.all()
    assert not find_levels(scale * levels, 1e-3).is_proven.any()


@pytest.mark.parametrize("constant", [0.0, 0.2, 0.5, 1.0])
def test_a_constant_input_is_not_proven(constant):
    assert not find_levels(torch.full((3, 200), constant, dtype=torch.float64), 1e-3).is_proven.any()


def test_values_that_are_not_numbers_prove_nothing():
    inputs = images(2)
    inputs[1, 5] = torch.nan
    found = find_levels(inputs, 1e-3)
    assert found.is_proven.tolist() == [True, False]


def reconstruct(inputs):
    return Reconstruction(
        inputs=inputs.float(),
        certified=torch.tensor([True] + [False] * (len(inputs) - 1)),
        confidence=torch.full((len(inputs),), 0.5),
        outcome=Outcome.PARTIAL,
        message="1 of 3 training inputs is certified.",
        diagnostics={"training_size_estimate": 3, "doubts": ["", "noise", "noise"], "error_bounds": [0.01, 0.1, 0.1]},
    )


def view_of(**changes):
    model = nn.Linear(200, 2)
    view = AttackerView(model=model, final=dict(model.state_dict()), input_shape=(200,), bounds=(0.0, 1.0))
    return replace(view, **changes)


def test_a_reconstruction_says_what_levels_prove():
    inputs = images(3)
    blurred = inputs + noise(inputs, 1e-5)
    blurred[2] = blurred[2] + 0.3 * (inputs[1] - inputs[2])
    proven = prove_by_levels(view_of(), reconstruct(blurred), 1e-3)
    assert proven.certified.tolist() == [True, True, False]
    torch.testing.assert_close(proven.inputs[:2], inputs[:2].float(), atol=1e-7, rtol=0)
    assert proven.diagnostics["doubts"] == ["", "", "noise"]
    bounds, errors = proven.diagnostics["error_bounds"], (proven.inputs - inputs).abs().amax(dim=1).tolist()
    assert all(error <= bound < 1e-6 for error, bound in zip(errors[:2], bounds[:2], strict=True))
    assert bounds[2] == 0.1
    assert proven.outcome == Outcome.PARTIAL
    assert proven.message.endswith("1 further input is certified by the levels of 8-bit images.")
    everything = prove_by_levels(view_of(), reconstruct(inputs), 1e-3)
    assert everything.outcome == Outcome.CERTIFIED


def test_the_range_may_be_any_or_unknown():
    inputs = images(3)
    wide = prove_by_levels(view_of(bounds=(-1.0, 3.0)), reconstruct(4 * inputs - 1), 1e-3)
    assert wide.certified.all()
    found = reconstruct(inputs)
    assert prove_by_levels(view_of(bounds=None), found, 1e-3) is found


def test_images_with_coarser_levels_are_not_pinned():
    fine, coarse = images(3), (images(3, steps=36, seed=1) * 255).round() / 255
    assert are_pinned(fine, fine).all()
    assert not are_pinned(coarse, coarse).any()
    assert are_pinned(coarse[:1], torch.cat([fine, coarse[:1]])).all()  # the line to itself has no length
    between = coarse[0] + (coarse[1] - coarse[0]) * 36 / 255  # on 255 levels, and no image
    assert find_levels(between[None], 1e-3).is_proven.all()
    assert not are_pinned((between[None] * 255).round() / 255, coarse).any()
