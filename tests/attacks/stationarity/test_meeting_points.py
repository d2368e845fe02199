"""Meeting points of edges: planted points are found, shuffled edges meet nowhere, and the range of inputs holds."""

from dataclasses import replace

import pytest
import torch

from exhume.attacks.stationarity.meeting_points import (
    InputRange,
    MeetingPoints,
    find_corners,
    find_meeting_points,
)
from exhume.clues.search_space import SearchSpace
from exhume.core.run_context import OutOfTime, RunContext
from exhume.optimise.box import Box
from tests.attacks.stationarity.arrangements import (
    alternate,
    free_range,
    in_two_layers,
    normal_draw,
    random_edges,
    shuffle_offsets,
)


@pytest.mark.parametrize("dimension", [2, 5])
def test_points_on_many_edges_are_found_from_nearby_and_nothing_else_is(dimension):
    generator = torch.Generator().manual_seed(dimension)
    points = normal_draw(3, dimension, seed=dimension)
    edges = random_edges(points, 4 * dimension, 30, generator)
    starts = torch.cat([points + 0.02 * normal_draw(3, dimension, seed=9), normal_draw(40, dimension, seed=8)])
    found = find_meeting_points(edges, free_range(dimension), starts, RunContext.start(seed=1))
    surely = found.points[found.counts >= 4 * dimension]
    distances = torch.cdist(points, surely)
    assert float(distances.amin(1).max()) < 1e-6, "every planted point is found"
    assert float(distances.amin(0).max()) < 1e-6, "and no other point is"


def test_edges_that_meet_nowhere_give_no_point():
    generator = torch.Generator().manual_seed(0)
    edges = shuffle_offsets(random_edges(normal_draw(1, 4, seed=5), 20, 20, generator), 0)
    starts = normal_draw(60, 4)
    found = find_meeting_points(edges, free_range(4), starts, RunContext.start(seed=1))
    assert not bool((found.counts >= 10).any())


def test_corners_lead_to_points_far_from_every_start():
    generator = torch.Generator().manual_seed(3)
    points = torch.tensor([[0.9, 0.9, 0.9], [-0.9, 0.9, -0.9]], dtype=torch.float64)
    edges = random_edges(points, 15, 20, generator)
    near = points[:1] + 0.01 * normal_draw(4, 3)
    found = find_meeting_points(edges, free_range(3, 1.0), near, RunContext.start(seed=1))
    found = found.take(found.choose(10))
    assert float(torch.cdist(points, found.points).amin(1).max()) < 1e-6
    assert float(found.points.abs().max()) <= 1 + 1e-3


def test_points_are_led_by_the_first_layer_alone_and_then_fitted_to_all_edges():
    """The first layer leads to where its own edges meet, a little off the point that all edges determine."""
    point, generator = normal_draw(1, 3), torch.Generator().manual_seed(1)
    off = point + 5e-5 * normal_draw(1, 3, seed=1)
    edges = in_two_layers(alternate(random_edges(off, 12, 0, generator), random_edges(point, 12, 0, generator)))
    starts = torch.cat([point, normal_draw(40, 3, seed=3)])
    found = find_meeting_points(edges, free_range(3, 5.0), starts, RunContext.start())
    found = found.take(found.choose(1))
    assert float((found.led - off).norm()) < 1e-6
    assert float((found.points - point).norm()) < 0.8 * float((off - point).norm())
    changed = replace(edges, biases=(edges.biases[0], edges.biases[1] + normal_draw(12)))
    others = find_meeting_points(changed, free_range(3, 5.0), starts, RunContext.start())
    assert float((others.led - found.led).norm(dim=1).min()) < 1e-6, "whatever upper edges do"


def test_points_are_chosen_once_and_proven_ones_first():
    points = torch.tensor([[0.0], [5.0], [5.001], [9.0]], dtype=torch.float64)
    met = MeetingPoints(led=points, points=points, counts=torch.tensor([8, 7, 6, 1]), scale=1.0)
    assert met.choose(10).tolist() == [0, 1]
    assert met.choose(10, torch.tensor([False, False, True, False])).tolist() == [2, 0]
    assert met.choose(1).tolist() == [0]


def test_corners_lie_in_the_range_away_from_what_was_found():
    within = free_range(3, 1.0)
    found = torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]], dtype=torch.float64)
    corners = find_corners(within, found, 20, torch.Generator().manual_seed(0))
    assert corners.shape == (20, 3)
    assert float(corners.abs().max()) <= 1 + 2e-3
    assert bool((corners[:, 1:].abs() > 0.99).all())


def test_the_range_in_a_span_is_that_of_inputs():
    basis = torch.linalg.qr(normal_draw(5, 3)).Q
    space = SearchSpace(5, basis, 0.4)
    within = InputRange.of(Box(torch.full((5,), -0.2), torch.full((5,), 0.3)), space)
    free = normal_draw(4, 2, seed=1)
    inputs = space.inputs(space.coordinates(free))
    torch.testing.assert_close(within.inputs(free), inputs)
    torch.testing.assert_close(within.violation(free), inputs - inputs.clamp(-0.2, 0.3), atol=1e-7, rtol=0)
    faces, normals = within.faces_around(free)
    nearer = torch.minimum((inputs + 0.2).abs(), (inputs - 0.3).abs()) / within.axes.norm(dim=1)
    torch.testing.assert_close(faces.abs(), nearer, atol=1e-6, rtol=0)
    torch.testing.assert_close(normals.norm(dim=1), torch.ones(5, dtype=torch.float64))
    unbounded = InputRange.of(None, space)
    assert not unbounded.is_finite
    assert unbounded.faces_around(free)[0].shape == (4, 0)
    assert not bool(unbounded.violation(free).any())


def test_a_deadline_ends_the_search_with_what_it_has():
    points = normal_draw(1, 2)
    edges = random_edges(points, 8, 20, torch.Generator().manual_seed(0))
    late = replace(RunContext.start(seed=0, wraps_up=True), deadline=-1.0)
    found = find_meeting_points(edges, free_range(2), points, late)
    assert len(found.points) == 0
    with pytest.raises(OutOfTime):
        find_meeting_points(edges, free_range(2), points, replace(late, wraps_up=False))


def test_large_ranges_get_fewer_corners():
    axes = torch.linalg.qr(normal_draw(3000, 40)).Q
    ends = torch.ones(3000, dtype=torch.float64)
    within = InputRange(axes, torch.zeros_like(ends), -ends, ends)
    assert within.most_programs < 40
    assert free_range(3, 1.0).most_programs > 10_000
