"""Noise of the random start: measured as it was planted, and compared between the first layer and those above."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.clues.start_noise import LEAST_SIDE, split_first_layer, start_noise, upper_layers_look_random


def weight_with_noise(share: float, rows: int = 60, columns: int = 60, seed: int = 0) -> torch.Tensor:
    """Return a matrix of rank three plus noise that makes up ``share`` of its squared norm."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(rows, columns, generator=generator)
    low_rank = torch.randn(rows, 3, generator=generator) @ torch.randn(3, columns, generator=generator)
    return share**0.5 * noise / noise.norm() + (1 - share) ** 0.5 * low_rank / low_rank.norm()


@settings(max_examples=25)
@given(st.integers(80, 160), st.integers(80, 160), st.floats(0.05, 0.95), st.integers(0, 99))
def test_the_noise_is_measured_as_it_was_planted(rows, columns, share, seed):
    # Within a factor of two: single singular values of a square matrix vary, by up to 1.6 in 1500 trials.
    measured = start_noise(weight_with_noise(share, rows, columns, seed))
    assert 0.5 * share < measured < 2.0 * share


def test_small_matrices_and_biases_show_nothing():
    assert start_noise(torch.randn(100)) is None
    assert start_noise(torch.randn(100, LEAST_SIDE - 1)) is None
    assert start_noise(torch.zeros(20, 20)) == 0.0


def network(first: float, between: float, last: float) -> dict[str, torch.Tensor]:
    """Return the weights of three layers with these shares of noise."""
    weights = {name: weight_with_noise(share) for name, share in (("a.weight", first), ("b.weight", between))}
    return weights | {"a.bias": torch.ones(60), "c.weight": weight_with_noise(last, rows=20)}


@pytest.mark.parametrize(
    ("shares", "expected"),
    [((0.01, 0.5, 0.01), True), ((0.5, 0.5, 0.01), False), ((0.01, 0.01, 0.01), False), ((0.01, 0.01, 0.5), False)],
    ids=["only the upper layer", "both", "neither", "only the last layer"],
)
def test_upper_layers_look_random_where_they_alone_show_noise(shares, expected):
    weights = network(*shares)
    assert upper_layers_look_random(["a.weight", "a.bias", "b.weight", "c.weight"], weights) is expected


def test_a_network_of_one_layer_has_no_upper_layers():
    assert not upper_layers_look_random(["a.weight", "a.bias"], network(0.01, 0.5, 0.5))
    assert split_first_layer(["a.weight", "a.bias"]) == (["a.weight", "a.bias"], [])
