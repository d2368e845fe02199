"""Mixtures of rows are taken apart; rows of single inputs stay."""

import itertools

import pytest

from exhume.attacks.gates.mixtures import remove_mixtures
from exhume.attacks.gates.zeros import find_zeros
from tests.attacks.gates.victims import solved_problem


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(range(4), 2)))
@pytest.mark.parametrize("share", [0.5, -1.0, 2.0])
def test_a_mixture_of_two_rows_is_taken_apart(first, second, share):
    problem, rows, _ = solved_problem()
    mixture = rows[first] + share * rows[second]
    mixture = mixture[None] / mixture.norm()
    apart = remove_mixtures(problem, mixture, rows[[second]])
    assert float((apart @ rows[first]).abs()) > 1 - 1e-5
    assert int(find_zeros(problem, apart).sum()) > int(find_zeros(problem, mixture).sum())


def test_true_rows_stay():
    problem, rows, _ = solved_problem()
    assert float((remove_mixtures(problem, rows, rows) * rows).sum(dim=1).abs().min()) > 1 - 1e-6
    assert remove_mixtures(problem, rows, rows[:0]) is rows
