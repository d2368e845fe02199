"""Chance: counts and bounds against slow twins, p-values against simulated nulls."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from exhume.attacks.gates.check import check_rows
from exhume.attacks.gates.rows import sharpen
from exhume.attacks.gates.significance import bound_log_tail, log_halfspace_patterns, log_p_agreement, log_p_generic
from exhume.attacks.gates.zeros import find_zeros
from tests.attacks.gates.victims import problem_of, random_change, random_rows, solved_problem, unit_rows

LIMIT = math.log(1e-3 / 1000)
"""The log p-value below which a row is accepted after a thousand tries."""


@pytest.fixture(scope="module")
def dense():
    """A problem without an answer: no vector of the row space has more zeros than can be forced."""
    return problem_of(random_change()[0])


@pytest.mark.parametrize(("points", "free"), [(1, 1), (3, 1), (4, 2), (5, 2), (5, 3), (6, 3), (3, 5)])
def test_halfspace_patterns_against_brute_force(points, free):
    generator = torch.Generator().manual_seed(points * 10 + free)
    where = torch.randn(points, free, generator=generator, dtype=torch.float64)
    halfspaces = torch.randn(100_000, free, generator=generator, dtype=torch.float64)
    seen = torch.unique(halfspaces @ where.T > 0, dim=0)
    assert math.exp(log_halfspace_patterns(points, free)) == pytest.approx(len(seen))


def test_one_pattern_when_nothing_is_free():
    assert log_halfspace_patterns(1000, 0) == 0.0


@given(trials=st.integers(1, 3000), share=st.floats(0, 1), chance=st.floats(1e-6, 1 - 1e-6))
def test_the_tail_bound_is_never_below_the_tail(trials, share, chance):
    hits = round(share * trials)
    bound = bound_log_tail(np.array([float(hits)]), trials, np.array([chance]))[0]
    assert bound >= binom.logsf(hits - 1, trials, chance) - 1e-6 * abs(bound) - 1e-9


def test_true_rows_are_no_generic_vectors_of_the_row_space():
    problem, rows, _ = solved_problem()
    assert float(log_p_generic(problem, rows).max()) < -50


def test_with_rows_missing_the_p_value_accounts_for_the_freedom():
    problem, rows, _ = solved_problem()
    agreement = torch.full((1,), 0.97, dtype=torch.float64)
    bounds = [float(log_p_agreement(problem, rows[:1], agreement, free)) for free in range(5)]
    assert bounds == sorted(bounds)
    assert len(set(bounds)) == 5


class TestNull:
    def test_random_vectors_of_a_row_space_look_generic(self, dense):
        for problem in (solved_problem().problem, dense):
            assert float(log_p_generic(problem, random_rows(problem, 1000)).min()) > -1.0

    def test_as_many_zeros_as_can_be_forced_are_no_evidence(self, dense):
        sharp = sharpen(dense, random_rows(dense, 1000))
        assert float(find_zeros(dense, sharp).sum(dim=1).double().mean()) >= dense.rank - 2
        assert float(log_p_generic(dense, sharp).min()) > LIMIT

    def test_zeros_that_are_unrelated_to_the_weights_are_no_evidence(self):
        for seed in range(4):
            view, effects = random_change(seed=seed, sparse=True)
            problem = problem_of(view)
            # The sparse rows exist, and are found from nearby; but the gates of their inputs are not theirs.
            sharp = sharpen(problem, unit_rows(effects, problem.rows))
            assert float(log_p_generic(problem, sharp).max()) < LIMIT
            checked = check_rows(problem, sharp)
            assert not bool(checked.is_single.any())
            assert float(checked.log_p.min()) > LIMIT

    def test_p_values_of_random_gates_are_conservative(self):
        problem, rows, _ = solved_problem()
        generator = torch.Generator().manual_seed(0)
        shown = problem.normalise(rows[:1]).abs() > 1e-2
        predicted = torch.rand(20_000, shown.shape[1], generator=generator) < 0.5
        agreement = (predicted == shown).double().mean(dim=1)
        p_values = log_p_agreement(problem, rows[:1].expand(len(agreement), -1), agreement, 0).exp()
        for level in (0.1, 0.01, 0.001):
            assert float((p_values <= level).double().mean()) <= level
