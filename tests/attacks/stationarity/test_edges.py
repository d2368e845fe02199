"""Meeting points of edges: planted points are found, shuffled edges meet nowhere, and digits come out exactly."""

from dataclasses import replace

import pytest
import torch

import exhume
from exhume.attacks import MaxMargin
from exhume.attacks.stationarity.edges import Edges, find_meeting_points
from exhume.clues.search_space import SearchSpace
from exhume.training.recipes import weight_decay_recipe
from tests.attacks.stationarity.victims import digits


def random_edges(points, each, others, generator):
    """Return ``each`` edges through every point, and ``others`` through none."""
    dimension = points.shape[1]
    normals = torch.randn(each * len(points) + others, dimension, generator=generator, dtype=torch.float64)
    normals = normals / normals.norm(dim=1, keepdim=True)
    offsets = torch.randn(len(normals), generator=generator, dtype=torch.float64)
    through = normals[: each * len(points)]
    offsets[: len(through)] = -(through * points.repeat_interleave(each, 0)).sum(1)
    return Edges(normals, offsets)


@pytest.mark.parametrize("dimension", [2, 5])
def test_points_on_many_edges_are_found_from_nearby_and_nothing_else_is(dimension):
    generator = torch.Generator().manual_seed(dimension)
    points = torch.randn(3, dimension, generator=generator, dtype=torch.float64)
    edges = random_edges(points, 4 * dimension, 30, generator)
    near = points + 0.02 * torch.randn(points.shape, generator=generator, dtype=torch.float64)
    starts = torch.cat([near, torch.randn(40, dimension, generator=generator, dtype=torch.float64)])
    found = find_meeting_points(edges, starts, generator)
    assert bool((found.counts >= 4 * dimension).all())
    assert bool(found.determined.all())
    distances = torch.cdist(points, found.points)
    assert float(distances.amin(1).max()) < 1e-6, "every planted point is found"
    assert float(distances.amin(0).max()) < 1e-6, "and no other point is"


def test_edges_that_meet_nowhere_give_no_point():
    generator = torch.Generator().manual_seed(0)
    edges = random_edges(torch.zeros(1, 4, dtype=torch.float64), 20, 20, generator).with_shuffled_offsets(generator)
    starts = torch.randn(60, 4, generator=generator, dtype=torch.float64)
    assert len(find_meeting_points(edges, starts, generator).points) == 0


def test_a_line_between_two_points_is_not_called_determined():
    generator = torch.Generator().manual_seed(1)
    one, other = torch.randn(2, 3, generator=generator, dtype=torch.float64)
    along = (other - one) / (other - one).norm()
    normals = torch.randn(24, 3, generator=generator, dtype=torch.float64)
    normals = normals - (normals @ along)[:, None] * along
    normals = normals / normals.norm(dim=1, keepdim=True)
    shared = Edges(normals, -(normals @ one))
    between = (one + other)[None] / 2
    assert int(shared.count_through(between, 1.0)[0]) == 24
    assert not bool(shared.are_determined(between, 1.0)[0])


def test_units_with_the_same_edge_count_once():
    generator = torch.Generator().manual_seed(2)
    edges = random_edges(torch.zeros(1, 3, dtype=torch.float64), 5, 5, generator)
    twice = Edges(torch.cat([edges.normals, -edges.normals]), torch.cat([edges.offsets, -edges.offsets]))
    assert len(twice.without_duplicates().offsets) == 10


def test_networks_without_edges_have_none():
    for model in (exhume.MLP(width=200, activation="tanh"), exhume.MLP(width=8), exhume.MLP(depth=0)):
        module = model.build((3,), 1, torch.Generator().manual_seed(0))
        view = exhume.AttackerView(model=module, final=module.state_dict(), input_shape=(3,))
        assert Edges.of(view, SearchSpace(3)) is None
    dead = {name: torch.zeros_like(weight) for name, weight in exhume.MLP(width=40).build((3,), 1).state_dict().items()}
    view = exhume.AttackerView(model=exhume.MLP(width=40).build((3,), 1), final=dead, input_shape=(3,))
    assert Edges.of(view, SearchSpace(3)) is None


def test_heights_in_a_span_are_those_of_the_network():
    model = exhume.MLP(width=40, bias="first").build((3,), 1, torch.Generator().manual_seed(0))
    final = {name: weight.double() + 0.1 for name, weight in model.state_dict().items()}
    view = exhume.AttackerView(model=model, final=final, input_shape=(3,))
    basis = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))).Q
    space = SearchSpace(3, basis, 0.7)
    edges = Edges.of(view, space)
    assert edges is not None
    free = torch.tensor([[0.3, -0.2]], dtype=torch.float64)
    activations = (space.inputs(space.coordinates(free)) @ final["layer1.weight"].T + final["layer1.bias"])[0]
    distances = activations / (final["layer1.weight"] @ basis[:, :2]).norm(dim=1)
    assert len(edges.offsets) > 30
    assert float((edges.signed_distances(free).T - distances).abs().amin(1).max()) < 1e-12


def test_digits_come_out_exactly_from_stationary_weights():
    data = digits(10)
    recipe = weight_decay_recipe(loss="ce", weight_decay=1e-3, width=200, steps=2500)
    view = replace(exhume.train(data, device="cpu", **recipe).view(), initial=None)
    found = MaxMargin(trials=1, restarts=2, steps=300).run(view, device="cpu")
    exact = len(found.diagnostics["edges_met"])
    assert exact >= 2
    errors = (found.inputs[:, None] - data.train.inputs).abs().flatten(2).amax(2).amin(1)
    assert float(errors[:exact].max()) < 0.02
    assert float(errors[:exact].max()) < 0.3 * float(errors[exact:].median()), "more exact than the search itself"
