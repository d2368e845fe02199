"""Edges of all hidden layers: distances and normals against the network itself, and what has no edges."""

from dataclasses import replace

import pytest
import torch

import exhume
from exhume.attacks.stationarity.edges import FAR, Edges
from exhume.clues.search_space import SearchSpace
from exhume.clues.span import span_of_final_features
from tests.attacks.stationarity.arrangements import normal_draw
from tests.attacks.stationarity.rest_victims import ON_EDGE, images, view_at_rest


def view_of(model, inputs=3, shift=0.1):
    module = model.build((inputs,), 1, torch.Generator().manual_seed(0))
    final = {name: weight.double() + shift for name, weight in module.state_dict().items()}
    return exhume.AttackerView(model=module, final=final, input_shape=(inputs,))


def pre_activations(view, inputs):
    """Return the pre-activations of both hidden layers."""
    first = inputs @ view.final["layer1.weight"].T + view.final["layer1.bias"]
    return torch.cat([first, first.relu() @ view.final["layer2.weight"].T], 1)


@pytest.mark.parametrize("span", [False, True])
def test_distances_and_normals_are_those_of_the_network(span):
    view = view_of(exhume.MLP(width=40, bias="first"))
    basis = torch.linalg.qr(normal_draw(3, 3, seed=1)).Q
    space = SearchSpace(3, basis, 0.7) if span else SearchSpace(3)
    edges = Edges.of(view, space)
    free = normal_draw(5, space.dimension, seed=2)

    def values(at):
        return pre_activations(view, space.inputs(space.coordinates(at)))[:, torch.cat(edges.is_counted)]

    slopes = torch.func.vmap(torch.func.jacrev(lambda one: values(one[None])[0]))(free)
    lengths = slopes.norm(dim=2)
    local = edges.around(free)
    is_flat = lengths < 1e-12
    torch.testing.assert_close(local.distances[~is_flat], (values(free) / lengths)[~is_flat])
    torch.testing.assert_close(local.normals[~is_flat], (slopes / lengths[..., None])[~is_flat])


def test_units_with_the_same_edge_count_once():
    view = view_of(exhume.MLP(width=40, bias="first"))
    final = dict(view.final)
    for name in ("layer1.weight", "layer1.bias"):
        final[name] = torch.cat([final[name][:20], -2 * final[name][:20]])
    twice = exhume.AttackerView(model=view.model, final=final, input_shape=(3,))
    assert int(Edges.of(twice, SearchSpace(3)).is_counted[0].sum()) <= 20


def test_networks_without_edges_have_none():
    for model in (
        exhume.MLP(width=200, activation="tanh"),
        exhume.MLP(width=8),
        exhume.MLP(depth=0),
        exhume.MLP(width=200, bias="none"),  # all edges meet at zero anyway
    ):
        assert Edges.of(view_of(model), SearchSpace(3)) is None
    module = exhume.MLP(width=40).build((3,), 1)
    dead = {name: torch.zeros_like(weight) for name, weight in module.state_dict().items()}
    assert Edges.of(exhume.AttackerView(model=module, final=dead, input_shape=(3,)), SearchSpace(3)) is None


def test_upper_units_do_not_count_where_they_are_nearly_flat():
    view = view_of(exhume.MLP(width=40, bias="first"))
    edges = Edges.of(view, SearchSpace(3)).with_slopes_at(normal_draw(20, 3))
    first = int(edges.is_counted[0].sum())
    usual = edges.around(normal_draw(20, 3, seed=5)).distances[:, first:]
    assert float((usual.abs() == FAR).double().mean()) < 0.5
    # With these offsets every unit of the first layer is off around zero, and the second layer is flat.
    off = replace(edges, biases=(torch.full((40,), -1.0, dtype=torch.float64), edges.biases[1]))
    around_zero = off.around(torch.zeros(1, 3, dtype=torch.float64)).distances
    assert bool((around_zero[:, first:] == FAR).all())
    assert bool((around_zero[:, :first].abs() < FAR).all())


def test_the_first_layer_and_those_above_it_are_all_edges():
    edges = Edges.of(view_of(exhume.MLP(width=40, bias="first")), SearchSpace(3))
    points, upper = normal_draw(5, 3), edges.upper_layers()
    apart = [part.around(points).distances for part in (edges.first_layer(), upper)]
    assert torch.equal(torch.cat(apart, 1), edges.around(points).distances)


def test_edges_of_a_layer_above_others_pass_the_features_on_them():
    inputs = images(5)
    view = view_at_rest(inputs)
    span = span_of_final_features(view)
    space = SearchSpace.spanned_by(span, torch.float64)
    edges = Edges.of_layer(span.layer, space)
    features = view.model[0](inputs).detach()
    distances = edges.around(space.project(features)).distances.abs()
    assert ((distances < 1e-4).sum(0) == ON_EDGE).double().mean() > 0.9
    assert Edges.of_layer(replace(span.layer, has_bias=False), space) is None
