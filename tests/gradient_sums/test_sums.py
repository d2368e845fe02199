"""Wrapped sums: in chunks of candidates, and weighted per parameter."""

import pytest
import torch

from exhume.gradient_sums.module import ModuleSums
from exhume.gradient_sums.sums import ChunkedSums, WeightedSums
from tests.gradient_sums.networks import (
    ARCHITECTURES,
    DOUBLE,
    assert_close,
    build,
    inputs_and_duals,
    sums_and_target,
    view_of,
)

BETA = torch.tensor(4.0, dtype=DOUBLE)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 99])
@pytest.mark.parametrize("is_closed_form", [True, False])
def test_chunks_of_candidates_give_the_whole_value_and_gradients(size, is_closed_form):
    view = view_of(build(width=7))
    sums, target = sums_and_target(view)
    sums = sums if is_closed_form else ModuleSums.at(view, [view.initial, view.final], DOUBLE)
    inputs, duals = inputs_and_duals(5)
    chunked = ChunkedSums(sums, size)
    assert_close(
        chunked.squared_residual(target, inputs, duals, BETA), sums.squared_residual(target, inputs, duals, BETA)
    )
    torch.testing.assert_close(chunked.outputs(inputs), sums.outputs(inputs))
    torch.testing.assert_close(chunked.squared_norms(inputs, duals, BETA), sums.squared_norms(inputs, duals, BETA))
    assert chunked.names == sums.names
    assert chunked.takes_coordinates is is_closed_form


@pytest.mark.parametrize("above", [0.0, 0.3])
@pytest.mark.parametrize("sharpness", [None, BETA], ids=["exact", "smooth"])
@pytest.mark.parametrize("architecture", ARCHITECTURES.values(), ids=ARCHITECTURES.keys())
def test_weighted_layers_are_the_same_in_closed_form(architecture, sharpness, above):
    sums, target = sums_and_target(view_of(build(**architecture)))
    inputs, duals = inputs_and_duals()
    first = sums.names[0].rpartition(".")[0]
    factors = tuple(1.0 if name.startswith(first) else above for name in sums.names)
    fast, slow = WeightedSums(sums, factors), WeightedSums(ChunkedSums(sums, 99), factors)
    arguments = (fast.weight(target), inputs, duals, sharpness)
    assert_close(fast.squared_residual(*arguments), slow.squared_residual(*arguments))


def test_weighted_residuals_are_those_of_weighted_sums():
    sums, target = sums_and_target(view_of(build(width=7)))
    inputs, duals = inputs_and_duals()
    factors = tuple(0.1 * (number + 1) for number in range(len(sums.names)))
    weighted = WeightedSums(sums, factors)
    value = weighted.squared_residual(weighted.weight(target), inputs, duals, BETA)[0]
    written = weighted(inputs, duals, BETA)[0]
    slow = sum((one - other).square().sum() for one, other in zip(written, weighted.weight(target), strict=True))
    torch.testing.assert_close(value, slow)
