"""The certificate of meeting edges: planted inputs have it; chance, lines and imprecise points do not."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import exhume
from exhume.attacks.stationarity.edge_certificate import (
    Doubt,
    adjust_for_many,
    certify_meeting_points,
    chance_of_edge,
    log_p_hits,
)
from exhume.attacks.stationarity.edge_fit import EdgeRules
from exhume.attacks.stationarity.edges import Edges
from exhume.attacks.stationarity.max_margin import MaxMargin
from exhume.attacks.stationarity.meeting_points import (
    InputRange,
    MeetingPoints,
    count_edges_through,
    find_meeting_points,
)
from exhume.clues.clues import clues_of
from exhume.clues.search_space import SearchSpace
from exhume.core.run_context import RunContext
from exhume.evaluation.verdict import Finding, verdict_of_evaluation
from exhume.optimise.box import Box
from exhume.records import Outcome
from exhume.training.recipes import weight_decay_recipe
from tests.attacks.stationarity.arrangements import (
    alternate,
    first_layer_edges,
    free_range,
    in_two_layers,
    normal_draw,
    random_edges,
    shuffle_offsets,
)
from tests.attacks.stationarity.victims import digits

DECAYED = weight_decay_recipe(loss="ce", weight_decay=1e-3, width=250, steps=1500)


def certify(edges, within, points, scale=1.0):
    return certify_meeting_points(edges, within, MeetingPoints.fit(points, edges, within, scale), 1e-3)


def search_and_certify(edges, within, starts, span=None, seed=0):
    edges = edges.with_slopes_at(starts)
    met = find_meeting_points(edges, within, starts, RunContext.start(seed=seed))
    return certify_meeting_points(edges, within, met, 1e-3, span)


@pytest.mark.parametrize("dimension", [2, 6])
def test_points_on_many_edges_are_certified(dimension):
    points = normal_draw(3, dimension)
    edges = in_two_layers(random_edges(points, 48 + 8 * dimension, 100, torch.Generator().manual_seed(1)))
    certificate = certify(edges, free_range(dimension), points)
    assert certificate.doubts == [Doubt.NONE] * 3
    assert float(certificate.log_p.max()) < math.log(1e-3)
    assert float(certificate.errors.max()) < 1e-6


def test_points_where_the_edges_of_one_layer_meet_are_not():
    """Units that one input leaves off meet at a point that is no input, and only those of one layer do."""
    points, generator = normal_draw(1, 5), torch.Generator().manual_seed(2)
    meeting, away = random_edges(points, 80, 0, generator), random_edges(points, 0, 80, generator)
    for edges in (in_two_layers(alternate(meeting, away)), in_two_layers(alternate(away, meeting)), meeting):
        assert certify(edges, free_range(5), points).doubts == [Doubt.ONE_LAYER]


def test_a_line_on_which_the_upper_layers_meet_is_no_proof():
    """If their weights have a low rank, all units of upper layers meet wherever a few functions vanish."""
    points, generator = normal_draw(1, 4), torch.Generator().manual_seed(1)
    first = random_edges(points, 60, 0, generator)
    upper = first.weights[0] * torch.tensor([1.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    normals = torch.stack([first.weights[0], upper], 1).flatten(0, 1)
    edges = in_two_layers(first_layer_edges(normals, -(normals @ points[0])))
    assert certify(edges, free_range(4, 5.0), points).doubts == [Doubt.LINE]


def test_points_on_as_many_edges_as_can_be_forced_are_not():
    edges = in_two_layers(random_edges(normal_draw(1, 5), 8, 80, torch.Generator().manual_seed(1)))
    assert certify(edges, free_range(5), normal_draw(1, 5)).doubts == [Doubt.CHANCE]


@pytest.mark.parametrize("seed", range(3))
def test_a_crowd_of_edges_is_no_meeting(seed):
    """Around some points edges are denser on every smaller scale, and dozens pass within a thousandth."""
    generator = torch.Generator().manual_seed(seed)
    normals = normal_draw(300, 4, seed=seed)
    normals = normals / normals.norm(dim=1, keepdim=True)
    decades = 4 * torch.rand(300, generator=generator, dtype=torch.float64)
    edges = first_layer_edges(normals, 10**-decades * normal_draw(300, seed=seed + 9).sign())
    crowd = torch.zeros(1, 4, dtype=torch.float64)
    assert int(count_edges_through(edges, crowd, 1.0)) > 50
    assert certify(in_two_layers(edges), free_range(4, 1.0), crowd).doubts == [Doubt.CHANCE]


def test_a_line_between_two_points_is_no_proof():
    """Edges through two inputs contain the line between them; the cut of one more edge is on all of these edges."""
    generator = torch.Generator().manual_seed(1)
    one, other = normal_draw(2, 4)
    along = (other - one) / (other - one).norm()
    normals = normal_draw(80, 4, seed=3)
    normals = normals - (normals @ along)[:, None] * along
    normals = torch.cat([normals / normals.norm(dim=1, keepdim=True), along[None]])
    cut = one + 0.4 * (other - one)
    away = random_edges(cut[None], 0, 60, generator)
    edges = first_layer_edges(torch.cat([normals, away.weights[0]]), torch.cat([-(normals @ cut), away.biases[0]]))
    assert int(count_edges_through(edges, cut[None], 1.0)) >= 81
    assert certify(in_two_layers(edges), free_range(4, 5.0), cut[None]).doubts == [Doubt.LINE]


def test_noise_that_leaves_a_point_imprecise_is_stated():
    point = normal_draw(1, 3)
    edges = random_edges(point, 100, 20, torch.Generator().manual_seed(1))
    squeeze = torch.tensor([1.0, 1.0, 3e-4], dtype=torch.float64)
    normals = edges.weights[0] * squeeze
    lengths = normals.norm(dim=1)
    offsets = edges.biases[0].clone()
    offsets[:100] = -(normals[:100] @ point[0]) / lengths[:100] + 1e-4 * normal_draw(100, seed=4)
    edges = in_two_layers(first_layer_edges(normals / lengths[:, None], offsets))
    certificate = certify(edges, free_range(3), point)
    assert certificate.doubts == [Doubt.NOISE]
    assert float(certificate.errors) > 0.02
    # A range that leaves no room along the weak direction makes up for it.
    corner = free_range(3, 5.0)
    tight = type(corner)(corner.axes, corner.origin, point[0] - 1e-3, point[0] + 1e-3)
    assert certify(edges, tight, point).doubts == [Doubt.NONE]


def test_few_points_that_were_found_without_the_counted_edges_are_below_an_error_rate():
    rate, arrangements, below = 0.2, 100, 0
    for seed in range(arrangements):
        edges = random_edges(torch.zeros(1, 2, dtype=torch.float64), 0, 80, torch.Generator().manual_seed(seed))
        vertex = torch.linalg.solve(edges.weights[0][:2], -edges.biases[0][:2])
        sizes = edges.around(vertex[None]).distances[0].abs()
        rules = EdgeRules(width=0.01)
        below += log_p_hits(int((sizes[40:] < rules.width).sum()), 40, chance_of_edge(sizes, rules)) < math.log(rate)
    assert below <= rate * arrangements


@given(st.lists(st.floats(-50, 0), min_size=1, max_size=8))
def test_p_values_are_adjusted_as_by_a_slow_twin(log_p):
    """Test by test, the smallest first; the first one that fails ends the procedure (Holm 1979)."""
    adjusted = adjust_for_many(log_p)
    for rate in (0.5, 1e-3, 1e-9):
        left, rejected = sorted(log_p), 0
        while left and left[0] + math.log(len(left)) < math.log(rate):
            left, rejected = left[1:], rejected + 1
        assert sum(one < math.log(rate) for one in adjusted) == rejected


@pytest.mark.parametrize("seed", range(2))
def test_random_networks_have_no_certificate(seed):
    model = exhume.MLP(width=40, bias="first")
    module = model.build((4,), 2, torch.Generator().manual_seed(seed))
    final = {name: weight.double() for name, weight in module.state_dict().items()}
    final["layer1.bias"] = 0.5 * normal_draw(40, seed=seed)
    view = exhume.AttackerView(model=module, final=final, input_shape=(4,))
    edges, within = Edges.of(view, SearchSpace(4)), free_range(4, 1.0)
    for control in (edges, shuffle_offsets(edges, seed)):
        assert not bool(search_and_certify(control, within, 0.5 * normal_draw(20, 4), seed=seed).is_certified.any())


def test_digits_are_certified_from_final_weights_and_the_verdict_says_so(tmp_path):
    data = digits(10)
    view = replace(exhume.train(data, device="cpu", **DECAYED).view(), initial=None)
    found = MaxMargin(trials=1, restarts=2, steps=100, prove=True).run(view, device="cpu")
    assert int(found.certified.sum()) >= 4
    assert found.outcome is Outcome.PARTIAL
    errors = (found.inputs[:, None] - data.train.inputs).abs().flatten(2).amax(2).amin(1)
    assert float(errors[found.certified].max()) < 0.01
    assert [not doubt for doubt in found.diagnostics["doubts"]] == found.certified.tolist()
    bounds = found.diagnostics["error_bounds"]
    assert all(bounds[place] <= 0.02 for place in found.certified.nonzero()[:, 0].tolist())
    assert None in bounds, "nothing bounds the error of a candidate that no edges determine"
    found.save(tmp_path / "found.safetensors")
    assert exhume.Reconstruction.load(tmp_path / "found.safetensors").diagnostics["error_bounds"] == bounds
    evaluation = exhume.evaluate(found, data)
    assert (evaluation.certified, evaluation.false_certificates) == (int(found.certified.sum()), 0)
    assert verdict_of_evaluation(evaluation).finding is Finding.PROVEN
    # The same network with shuffled offsets: its edges have the same directions, and no training made them meet.
    space = SearchSpace.spanned_by(clues_of(view).span, torch.float64)
    within = InputRange.of(Box.of(view, torch.float64), space)
    edges = shuffle_offsets(Edges.of(view, space), 0)
    starts = space.project(view.to_model(found.inputs).flatten(1).double())
    assert not bool(search_and_certify(edges, within, starts).is_certified.any())


def test_a_span_that_is_known_too_imprecisely_leaves_no_certificate():
    view = replace(exhume.train(digits(10), device="cpu", **DECAYED).view(), initial=None)
    span = clues_of(view).span
    space = SearchSpace.spanned_by(span, torch.float64)
    edges, within = Edges.of(view, space), InputRange.of(Box.of(view, torch.float64), space)
    starts = space.project(view.to_model(digits(10).train.inputs).flatten(1).double())
    known, unknown = (
        search_and_certify(edges, within, starts, replace(span, noise=factor * span.noise)) for factor in (1, 1000)
    )
    assert int(known.is_certified.sum()) >= 4
    assert not bool(unknown.is_certified.any())
    assert Doubt.NOISE in unknown.doubts
