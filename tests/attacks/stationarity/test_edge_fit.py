"""What edges determine: errors of fitted points against a slow twin, and lines along which a point could slide."""

import numpy as np
import pytest
import torch
from scipy.optimize import linprog, minimize

from exhume.attacks.stationarity.edge_fit import EdgeFit, EdgeRules, _bound_by_duality, fewest_resisting, largest_error
from exhume.attacks.stationarity.meeting_points import InputRange
from tests.attacks.stationarity.arrangements import free_range, normal_draw

RULES = EdgeRules()


def unit_normals(count, dimension, seed=0):
    normals = normal_draw(count, dimension, seed=seed)
    return normals / normals.norm(dim=1, keepdim=True)


def refit(normals, distances):
    """Return how far a point with these signed distances from edges is from where they meet best."""
    return torch.linalg.lstsq(normals, -distances[:, None]).solution[:, 0]


@pytest.mark.parametrize("dimension", [2, 5])
def test_fitted_points_err_by_less_than_the_bound(dimension):
    normals, noise = unit_normals(40, dimension), 1e-4
    ratios = []
    for seed in range(20):
        distances = noise * normal_draw(40, seed=seed + 1)
        moved = refit(normals, distances)
        fit = EdgeFit.of(distances + normals @ moved, normals)
        bound = largest_error(fit, free_range(dimension), moved, 0.0, RULES.precision)
        ratios.append(float(moved.abs().max()) / bound)
    assert 0.1 < max(ratios) < 1


@pytest.mark.parametrize("direction", range(3))
def test_the_bound_holds_for_errors_of_distances_that_do_not_average_out(direction):
    """A training that ends early leaves an input beside all its edges in the same direction."""
    normals = unit_normals(40, 3)
    residuals = 1e-4 * normal_draw(40)
    residuals = residuals - normals @ torch.linalg.lstsq(normals, residuals[:, None]).solution[:, 0]
    fit = EdgeFit.of(residuals, normals)
    bound = largest_error(fit, free_range(3), torch.zeros(3).double(), 0.0, RULES.precision)
    moved = fit.directions[direction] * float(residuals.norm()) / fit.strengths[direction]
    assert float((normals @ moved).norm()) == pytest.approx(float(residuals.norm()))
    assert float(moved.abs().max()) < bound


def test_what_lies_outside_the_searched_space_adds_to_the_bound():
    fit = EdgeFit.of(1e-5 * normal_draw(40), unit_normals(40, 3))
    bounds = [
        largest_error(fit, free_range(3), torch.zeros(3).double(), slack, RULES.precision)
        for slack in (0.0, 0.01, 0.03)
    ]
    assert bounds[1] == pytest.approx(bounds[0] + 0.01)
    assert bounds[2] == torch.inf, "beyond the precision"


def test_more_noise_and_fewer_edges_give_a_larger_bound():
    normals, distances = unit_normals(40, 3), 1e-4 * normal_draw(40)

    def bound(scale, count):
        return largest_error(
            EdgeFit.of(scale * distances[:count], normals[:count]),
            free_range(3),
            torch.zeros(3).double(),
            0.0,
            RULES.precision,
        )

    assert bound(1.0, 40) < bound(3.0, 40)
    assert bound(1.0, 40) < bound(1.0, 6)


def test_a_direction_that_no_edge_fixes_is_bounded_by_the_range_alone():
    normals = torch.cat([unit_normals(20, 2), torch.zeros(20, 1).double()], dim=1)
    fit = EdgeFit.of(1e-6 * normal_draw(20), normals)
    assert largest_error(fit, free_range(3), torch.zeros(3).double(), 0.0, RULES.precision) > 1
    inside = largest_error(fit, free_range(3, 0.005), torch.zeros(3).double(), 0.0, RULES.precision)
    assert inside <= 0.005 + 1e-9


def test_edges_that_resist_in_all_directions_rule_out_lines():
    points = torch.zeros(1, 3).double()

    def resisting(normals):
        fit = EdgeFit.of(1e-6 * normal_draw(len(normals)), normals)
        return fewest_resisting(fit, free_range(3, 1.0), points, 0, 1e-3, RULES.precision)

    assert resisting(unit_normals(30, 3)) > 20
    along = torch.cat([unit_normals(29, 2), torch.zeros(29, 1).double()], dim=1)  # all but one edge hold this line
    assert resisting(torch.cat([along, unit_normals(1, 3)])) <= 1
    # A range in which nothing moves by more than the precision needs no edges.
    fit = EdgeFit.of(1e-6 * normal_draw(29), along)
    assert fewest_resisting(fit, free_range(3, 0.001), points, 0, 1e-3, RULES.precision) == 29


def test_edges_through_two_points_do_not_resist_though_they_pass_both_at_a_distance():
    """Half of them pass above one point and below the other, by less than the width."""
    line, width = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64), 1e-3
    normals = (
        torch.cat([torch.zeros(40, 1).double(), unit_normals(40, 2)], 1) + width * normal_draw(40, 1).sign() * line
    )
    fit = EdgeFit.of(1e-9 * normal_draw(40), normals)
    points = torch.tensor([[0.0, 0.0, 0.0], [0.9, 0.0, 0.0]], dtype=torch.float64)
    assert fewest_resisting(fit, free_range(3, 1.0), points, 0, width, RULES.precision) == 0


@pytest.mark.parametrize("black", [0.0, 1e-6])
def test_black_pixels_do_not_hold_an_input_on_a_line(black):
    """Along the line between two pictures their black pixels do not move, or by what noise makes of them."""
    normals = torch.cat([unit_normals(40, 2), torch.zeros(40, 1).double()], 1)
    fit = EdgeFit.of(1e-6 * normal_draw(40), normals)
    along = torch.tensor([[0.0, 0.0, black], [0.0, 0.0, -black]], dtype=torch.float64)
    axes = torch.cat([torch.eye(3).double(), along])
    ends = torch.ones(5, dtype=torch.float64)
    within = InputRange(axes, torch.cat([0.5 * ends[:3], 0 * ends[:2]]), 0 * ends, ends)
    assert fewest_resisting(fit, within, torch.zeros(1, 3).double(), 0, 1e-3, RULES.precision) == 0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("is_loose", [True, False])
def test_the_bound_by_duality_is_the_largest_move(seed, is_loose):
    """Beside its slow twin: a linear program where coordinates are bounded one by one, and a cone program otherwise."""
    constraints = normal_draw(12, 4, seed=seed).numpy()
    room = 0.05 + 0.5 * normal_draw(12, seed=seed + 9).abs().numpy()
    loose = np.full(4, is_loose)
    bound = _bound_by_duality(constraints[0], constraints, room, loose, 0, 0.0)
    if is_loose:
        found = linprog(-constraints[0], constraints, room, bounds=[(-1, 1)] * 4)
    else:
        inside = {"type": "ineq", "fun": lambda z: 1 - z @ z}, {"type": "ineq", "fun": lambda z: room - constraints @ z}
        found = minimize(lambda z: -constraints[0] @ z, np.zeros(4), constraints=inside, method="SLSQP")
    assert found.success
    assert -found.fun - 1e-6 <= bound <= -1.02 * found.fun
