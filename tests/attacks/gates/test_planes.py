"""Planes of two rows: true rows are found in them, whatever mixtures span them."""

import pytest
import torch

from exhume.attacks.gates import planes
from exhume.attacks.gates.planes import scan_planes
from exhume.attacks.gates.zeros import find_zeros
from tests.attacks.gates.victims import cosines, made_problem, problem_of, random_change, random_rows, solved_problem


def mix_two(rows, first, second):
    """Return two mixtures of the first two rows."""
    mixed = torch.stack([rows[0] + first * rows[1], rows[1] + second * rows[0]])
    return mixed / mixed.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("parts", [(0.4, 0.7), (-1.5, 0.3), (0.2, -0.2)])
@pytest.mark.parametrize("settings", [{}, {"is_ratio_shared": True}, {"twins": 1, "closeness": 0.5, "width": 300}])
def test_two_mixtures_give_both_rows(parts, settings):
    problem, rows, _ = made_problem(**settings)
    found = scan_planes(problem, mix_two(rows, *parts))
    assert float(cosines(found, rows[:2]).amax(dim=0).min()) > 1 - 1e-6


def test_trained_rows_come_out_of_their_mixtures_among_others():
    problem, rows, _ = solved_problem()
    found = scan_planes(problem, torch.cat([mix_two(rows, 0.5, -0.3), rows[2:]]))
    assert float(cosines(found, rows[:2]).amax(dim=0).min()) > 0.9999


def test_the_best_row_of_a_plane_against_a_slow_twin():
    """Try the direction in which each unit is zero, and count zeros."""
    problem, rows, _ = made_problem(width=80)
    pair = mix_two(rows, 0.4, 0.7)
    entries = problem.normalise(pair)
    most = 0
    for unit in problem.informative.nonzero()[:, 0].tolist():
        row = entries[1, unit] * entries[0] - entries[0, unit] * entries[1]
        if float(row.norm()) > 1e-6:
            most = max(most, int(find_zeros(problem, (row @ problem.rows.T)[None] / row.norm()).sum()))
    found = find_zeros(problem, scan_planes(problem, pair)).sum(dim=1)
    assert int(found.max()) >= most - 1


def test_true_rows_propose_nothing_and_one_row_has_no_plane():
    problem, rows, _ = made_problem()
    assert len(scan_planes(problem, rows)) == 0
    assert scan_planes(problem, rows[:1]).shape == (0, 6)


def test_random_rows_propose_nothing_where_nothing_is():
    problem = problem_of(random_change()[0])
    found = scan_planes(problem, random_rows(problem, 16))
    assert int(find_zeros(problem, found).sum(dim=1).amax()) < problem.rank if len(found) else True


def test_parts_equal_the_whole(monkeypatch):
    problem, rows, _ = made_problem()
    pair = torch.cat([mix_two(rows, 0.4, 0.7), rows[2:]])
    whole = scan_planes(problem, pair)
    monkeypatch.setattr(planes, "PAIRS_AT_ONCE", 1)
    parts = scan_planes(problem, pair)
    assert len(parts) == len(whole)
    assert float(cosines(parts, whole).amax(dim=0).min()) > 1 - 1e-9
