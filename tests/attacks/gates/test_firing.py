"""How far units are from firing."""

from dataclasses import replace

import torch

from exhume.attacks.gates.firing import firing_distance
from tests.attacks.gates.victims import made_problem


def distances(problem, inputs):
    before, after = inputs @ problem.before.T, inputs @ problem.after.T
    return firing_distance(problem, before, after, inputs.norm(dim=1)), (before <= 0) & (after <= 0)


def test_only_units_that_are_off_at_both_ends_have_a_distance():
    problem, _, inputs = made_problem()
    for each in (problem, replace(problem, after=problem.before), replace(problem, gates_are_exact=True)):
        found, is_off = distances(each, inputs)
        assert bool((found[~is_off] == 0).all())
        assert float((found[is_off] > 0).double().mean()) > 0.99


def test_distances_are_those_of_directions():
    problem, _, inputs = made_problem()
    for each in (problem, replace(problem, after=problem.before), replace(problem, gates_are_exact=True)):
        assert torch.allclose(distances(each, inputs)[0], distances(each, 7.0 * inputs)[0])


def test_a_unit_that_moved_farther_is_closer_to_firing():
    problem, _, inputs = made_problem()
    farther = replace(problem, before=problem.before - (problem.after - problem.before))
    near, far = distances(farther, inputs)[0], distances(problem, inputs)[0]
    is_off = distances(problem, inputs)[1] & distances(farther, inputs)[1]
    assert float((near < far)[is_off].double().mean()) > 0.99


def test_no_unit_that_is_off_fires_in_one_gradient():
    problem, _, inputs = made_problem()
    found, is_off = distances(replace(problem, gates_are_exact=True), inputs)
    assert float(found[is_off].isinf().double().mean()) > 0.99
