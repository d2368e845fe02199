"""The search space: it holds the inputs of the subspace, its maps are adjoint, and stacked runs equal single ones."""

from dataclasses import replace

import pytest
import torch

from exhume.clues.clues import clues_of
from exhume.clues.search_space import SearchSpace
from exhume.models.mlp import MLP
from tests.attacks.gates.victims import draw, view_of


@pytest.fixture(scope="module", params=["first", "none"])
def trained(request):
    """A space read off a network with and without a bias, and the inputs that trained it."""
    data = draw(size=5)
    view = view_of(data, MLP(width=48, bias=request.param), steps=100)
    space = SearchSpace.spanned_by(clues_of(view).require_subspace(), torch.float64)
    return space, view.to_model(data.train.inputs).flatten(1).double()


def test_training_inputs_lie_in_the_space(trained):
    space, inputs = trained
    back = space.inputs(space.coordinates(space.project(inputs)))
    assert float((back - inputs).norm(dim=1).max() / inputs.norm(dim=1).min()) < 1e-3


def test_a_bias_fixes_one_coordinate(trained):
    space, _ = trained
    assert space.dimension == (4 if space.constant is not None else 5)
    coordinates = space.coordinates(torch.zeros(3, space.dimension, dtype=torch.float64))
    assert coordinates.shape == (3, 5)
    if space.constant is not None:
        nearest = space.inputs(coordinates)[0]
        assert float(nearest.norm()) == pytest.approx(space.constant)
        # The fixed part is orthogonal to all directions that are searched.
        assert float(space.project(nearest[None]).abs().max()) < 1e-9


def test_pulling_is_the_adjoint_of_mapping(trained):
    space, inputs = trained
    generator = torch.Generator().manual_seed(0)
    gradient = torch.randn(inputs.shape, generator=generator, dtype=torch.float64)
    coordinates = torch.randn(len(inputs), 5, generator=generator, dtype=torch.float64)
    left = (space.inputs(coordinates) * gradient).sum()
    right = (coordinates * space.pull(gradient)).sum()
    torch.testing.assert_close(left, right)
    assert space.release(space.pull(gradient)).shape == (len(inputs), space.dimension)


def test_runs_side_by_side_equal_single_runs(trained):
    space, inputs = trained
    other = replace(space, constant=None if space.constant is None else 2.0)
    both = SearchSpace.side_by_side([space, other])
    assert both.dimension == space.dimension
    free = space.project(inputs)
    together = both.inputs(both.coordinates(torch.stack([free, free])))
    for number, single in enumerate((space, other)):
        torch.testing.assert_close(together[number], single.inputs(single.coordinates(free)))


def test_without_a_subspace_coordinates_are_inputs():
    space = SearchSpace(3)
    inputs = torch.randn(2, 3)
    assert space.dimension == 3
    for map_ in (space.project, space.coordinates, space.inputs, space.pull, space.release):
        assert map_(inputs) is inputs
    assert SearchSpace.side_by_side([space, space]) is space


def test_a_stretched_step_moves_every_value_as_much_in_fewer_coordinates():
    basis = torch.linalg.qr(torch.randn(64, 4, generator=torch.Generator().manual_seed(0))).Q
    assert SearchSpace(64).stretch == 1.0
    step = SearchSpace(64, basis).stretch * torch.ones(1, 4)
    torch.testing.assert_close((step @ basis.T).square().mean(), torch.tensor(1.0))
