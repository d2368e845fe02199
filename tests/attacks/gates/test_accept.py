"""Accepting rows: true ones once each, mixtures and chance findings not."""

import math

import torch

from exhume.attacks.gates.accept import accept_rows
from exhume.attacks.gates.readout import missing_directions
from tests.attacks.gates.victims import problem_of, random_change, random_rows, solved_problem

LIMIT = math.log(1e-3 / 1000)


def accept(problem, found, candidates, limit=LIMIT, late=False):
    directions, _ = missing_directions(problem, found)
    return accept_rows(problem, found, candidates, directions, limit, torch.Generator().manual_seed(0), late=late)


def test_true_rows_are_accepted_once():
    problem, rows, _ = solved_problem()
    found = accept(problem, rows[:0], torch.cat([rows, rows, random_rows(problem, 20)]))
    cosines = (found @ rows.T).abs()
    assert float(cosines.amax(dim=1).min()) > 0.999
    assert len(found) == len(set(cosines.argmax(dim=1).tolist())) >= 12


def test_found_rows_stay_when_nothing_is_new():
    problem, rows, _ = solved_problem()
    found = accept(problem, rows[:12], rows[:12])
    assert found.shape[0] >= 12
    assert float((found[:12] * rows[:12]).sum(dim=1).abs().min()) > 0.999


def test_an_impossible_limit_accepts_nothing():
    problem, rows, _ = solved_problem()
    assert len(accept(problem, rows[:0], rows, limit=-math.inf)) == 0


def test_nothing_is_accepted_where_nothing_is():
    problem = problem_of(random_change()[0])
    for late in (False, True):
        assert len(accept(problem, random_rows(problem, 0), random_rows(problem, 200), late=late)) == 0
