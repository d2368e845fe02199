"""Sums and targets in coordinates of a search space, and the metric of the first layer there."""

import pytest
import torch

from exhume.clues.search_space import SearchSpace
from exhume.gradient_sums.coordinates import balanced_metric, move_into_space
from exhume.gradient_sums.module import ModuleSums
from exhume.models.convnet import ConvNet
from tests.gradient_sums.networks import DOUBLE, SHAPE, build, inputs_and_duals, random, sums_and_target, view_of


def subspace():
    return SearchSpace(6, torch.linalg.qr(random(6, 3)).Q)


def test_residuals_inside_the_space_are_those_of_inputs():
    sums, target = sums_and_target(view_of(build(width=7)))
    space, (_, duals) = subspace(), inputs_and_duals()
    first = target[0] @ space.basis @ space.basis.T  # a target inside the space, as a real change is
    inside, moved, metric = move_into_space(space, sums, first, 0.0)
    assert metric is None
    coordinates = random(4, 3)
    value = inside.squared_residual((moved, *target[1:]), coordinates, duals)[0]
    torch.testing.assert_close(value, sums.squared_residual((first, *target[1:]), space.inputs(coordinates), duals)[0])


def test_sums_that_take_inputs_stay_as_they_are():
    view = view_of(build(width=7))
    sums, target = ModuleSums.at(view, [view.final], DOUBLE), view.final["layer1.weight"]
    assert move_into_space(subspace(), sums, target, 0.5) == (sums, target, None)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_the_metric_keeps_the_size_of_the_change_and_balances_directions(power):
    change = random(20, 3) * torch.tensor([10.0, 1.0, 0.3], dtype=DOUBLE)
    metric = balanced_metric(change, power)
    torch.testing.assert_close((change * (change @ metric)).sum(), change.square().sum())
    strengths = torch.linalg.eigvalsh(change.T @ change)
    weighted = torch.linalg.eigvalsh(
        torch.linalg.cholesky(change.T @ change).T @ metric @ torch.linalg.cholesky(change.T @ change)
    )
    expected = strengths ** (1 - power)
    torch.testing.assert_close(weighted / weighted.sum(), expected / expected.sum())


def test_a_convolution_stays_as_it_is():
    view = view_of(ConvNet(depth=1).build(SHAPE, 2))
    sums, target = sums_and_target(view)
    assert move_into_space(SearchSpace(6), sums, target[0], 0.5) == (sums, target[0], None)
