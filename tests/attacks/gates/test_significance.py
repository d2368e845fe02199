"""Chance: counts and bounds against slow twins, p-values against simulated nulls."""

import math
from dataclasses import replace

import pytest
import torch
from scipy.stats import binom

from exhume.attacks.gates.check import check_rows
from exhume.attacks.gates.rows import polish
from exhume.attacks.gates.significance import (
    log_halfspace_patterns,
    log_p_generic,
    log_p_placement,
    log_p_zeros,
)
from exhume.attacks.gates.zeros import count_chance_zeros, find_zeros, zero_width
from tests.attacks.gates.victims import (
    made_problem,
    problem_of,
    random_change,
    random_rows,
    solved_problem,
    unit_rows,
)

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


def test_true_rows_are_no_generic_vectors_of_the_row_space():
    problem, rows, _ = solved_problem()
    assert float(log_p_generic(problem, rows).max()) < -50


def test_zeros_beyond_the_forced_ones_against_the_exact_tail():
    problem, rows, _ = solved_problem(width=64)
    size, width = problem.normalise(rows).abs(), zero_width(problem, rows)[:, 0]
    for index, bound in enumerate(log_p_zeros(problem, rows).tolist()):
        entries = size[index][problem.informative.bool()]
        zeros = int((entries <= width[index]).sum())
        expected = float(count_chance_zeros(problem, rows[index : index + 1]))
        exact = binom.logsf(zeros - 15 - 1, problem.units - 15, expected / problem.units)
        assert exact - 1e-9 <= bound <= exact + math.log(problem.units) + 2


def test_in_a_narrow_layer_few_zeros_beyond_the_forced_ones_are_no_accident():
    problem, rows, _ = solved_problem(width=4 * 16)
    beyond = find_zeros(problem, rows).sum(dim=1) - (problem.rank - 1)
    assert bool((beyond >= 4).any())
    assert float(log_p_zeros(problem, rows)[beyond >= 4].max()) < LIMIT


class TestPlacement:
    def test_against_the_exact_tail(self):
        problem, rows, inputs = solved_problem()
        zeros = find_zeros(problem, rows)
        for assumed in (inputs, inputs.roll(1, dims=0)):
            bounds = log_p_placement(problem, rows, assumed, 0)
            for index, bound in enumerate(bounds.tolist()):
                off = [
                    unit
                    for unit in problem.informative.nonzero()[:, 0].tolist()
                    if max(float(assumed[index] @ problem.before[unit]), float(assumed[index] @ problem.after[unit]))
                    <= 0
                ]
                hits, trials = int(zeros[index][off].sum()), int(zeros[index].sum())
                exact = binom.logsf(hits - 1, trials, len(off) / problem.units)
                assert exact - 1e-9 <= bound <= min(0.0, exact + 0.5 * math.log(8 * trials) + 1)

    def test_zeros_where_the_input_is_off_are_no_accident_and_those_of_another_are(self):
        problem, rows, inputs = made_problem()
        assert float(log_p_placement(problem, rows, inputs, 0).max()) < -20
        assert float(log_p_placement(problem, rows, inputs.roll(1, dims=0), 0).min()) > -10
        assert float(log_p_placement(problem, rows, -inputs, 0).min()) == 0.0

    def test_an_input_that_leaves_every_unit_off_proves_nothing(self):
        problem, rows, _ = made_problem()
        nowhere = torch.zeros(len(rows), len(problem.basis), dtype=torch.float64)
        assert float(log_p_placement(problem, rows, nowhere, 0).min()) > -1e-3

    def test_with_rows_missing_it_accounts_for_the_freedom(self):
        problem, rows, inputs = solved_problem()
        bounds = [float(log_p_placement(problem, rows[:1], inputs[:1], free)) for free in range(5)]
        assert bounds == sorted(bounds)
        assert len(set(bounds)) == 5

    def test_is_conservative_for_zeros_that_have_nothing_to_do_with_the_input(self):
        problem, rows, inputs = made_problem()
        generator = torch.Generator().manual_seed(0)
        found = []
        for _ in range(500):
            units = torch.randperm(problem.rows.shape[1], generator=generator)
            shuffled = replace(problem, before=problem.before[units], after=problem.after[units])
            found.append(log_p_placement(shuffled, rows, inputs, 0).exp())
        p_values = torch.cat(found)
        assert len(p_values) == 3000
        for level in (0.1, 0.01):
            assert float((p_values <= level).double().mean()) <= level


class TestNull:
    def test_random_vectors_of_a_row_space_look_generic(self, dense):
        for problem in (solved_problem().problem, dense):
            assert float(log_p_generic(problem, random_rows(problem, 1000)).min()) > -1.0

    @pytest.mark.parametrize("width", [64, 256])
    def test_as_many_zeros_as_can_be_forced_are_no_evidence(self, width):
        dense = problem_of(random_change(width=width)[0])
        generator = torch.Generator().manual_seed(0)
        forced = torch.stack(
            [torch.randperm(dense.rows.shape[1], generator=generator)[: dense.rank - 1] for _ in range(1000)]
        )
        rows = torch.linalg.svd(dense.rows.T[forced], full_matrices=True).Vh[:, -1]
        assert float(find_zeros(dense, rows).sum(dim=1).double().mean()) >= dense.rank - 1
        assert float(log_p_generic(dense, rows).min()) > LIMIT
        assert float(log_p_zeros(dense, rows).min()) > LIMIT

    def test_zeros_that_are_unrelated_to_the_weights_are_no_evidence(self):
        for seed in range(4):
            view, effects = random_change(seed=seed, sparse=True)
            problem = problem_of(view)
            # The sparse rows exist; but the gates of their inputs are not theirs.
            rows = polish(problem, unit_rows(effects, problem.rows))
            assert float(log_p_generic(problem, rows).max()) < LIMIT
            checked = check_rows(problem, rows)
            assert not bool(checked.is_exact.any())
            assert float(checked.log_p.min()) > LIMIT
