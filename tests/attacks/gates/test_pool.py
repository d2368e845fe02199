"""The pool: true rows join it once, chance and unexplained rows do not, and its heaviest basis is the best of all."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.attacks.gates.pool import add_to_pool, heaviest_basis
from tests.attacks.gates.victims import (
    cosines,
    made_problem,
    mix_rows,
    problem_of,
    random_change,
    random_rows,
    shared_difference,
)

LIMIT = math.log(1e-3 / 1000)


def fill(problem, rows, limit=LIMIT):
    return add_to_pool(problem, rows[:0], rows.new_zeros(0), rows, limit)


class TestPool:
    def test_true_rows_join_once_and_random_ones_do_not(self):
        problem, rows, _ = made_problem()
        pool, weights = fill(problem, torch.cat([random_rows(problem, 50), rows, -rows]))
        assert pool.shape == (6, 6)
        assert float(cosines(pool, rows).amax(dim=0).min()) > 1 - 1e-6
        assert bool((weights.diff() <= 0).all())

    def test_adding_a_pool_to_itself_changes_nothing(self):
        problem, rows, _ = made_problem()
        pool, weights = fill(problem, torch.cat([rows, mix_rows(rows)]))
        again, after = add_to_pool(problem, pool, weights, pool, LIMIT)
        # A second polishing may move a mixture, whose zeros do not determine it.
        assert torch.equal(after[: len(rows)], weights[: len(rows)])
        assert float((again[: len(rows)] * pool[: len(rows)]).sum(dim=1).abs().min()) > 1 - 1e-9

    def test_rows_that_no_input_explains_stay_out(self):
        problem, rows, _ = made_problem(is_ratio_shared=True, seed=1)
        difference = shared_difference(problem, rows)[None]
        pool, _ = fill(problem, torch.cat([difference, rows]))
        assert float(cosines(pool, difference).max()) < 0.9999
        assert len(pool) == 6

    @pytest.mark.parametrize("limit", [LIMIT, -math.inf])
    def test_nothing_joins_where_nothing_is(self, limit):
        problem = problem_of(random_change()[0])
        assert len(fill(problem, random_rows(problem, 200), limit)[0]) == 0

    def test_rows_that_are_not_finite_are_left_out(self):
        problem, rows, _ = made_problem()
        pool, _ = fill(problem, torch.cat([torch.full_like(rows[:2], torch.nan), rows]))
        assert len(pool) == 6
        assert len(fill(problem, torch.full_like(rows[:2], torch.nan))[0]) == 0

    def test_the_pool_stays_small_and_keeps_its_basis(self):
        problem, rows, _ = made_problem(count=4, width=300)
        parts = random_rows(problem, 400, seed=2)
        mixtures = torch.cat([rows[:2] + part * rows[1:3] for part in parts[:, :1]])
        mixtures = mixtures / mixtures.norm(dim=1, keepdim=True)
        pool, weights = fill(problem, torch.cat([mixtures, rows]))
        assert len(pool) == len(weights) <= problem.search.group * problem.rank + problem.rank
        assert float(cosines(heaviest_basis(problem, pool), rows).amax(dim=0).min()) > 1 - 1e-6


class TestBasis:
    def test_true_rows_come_before_mixtures(self):
        problem, rows, _ = made_problem()
        mixtures = torch.cat([mix_rows(rows, place, (place + 1) % 6, 0.4)[[place]] for place in range(6)])
        pool, _ = fill(problem, torch.cat([mixtures, rows]))
        assert len(pool) > 6, "mixtures of two rows are no accidents"
        basis = heaviest_basis(problem, pool)
        assert float(torch.linalg.svdvals(basis)[-1]) > 1e-2
        assert float(cosines(basis, rows).amax(dim=0).min()) > 1 - 1e-6

    @given(
        vectors=st.lists(st.tuples(*[st.integers(-1, 1)] * 3).filter(any), min_size=1, max_size=7, unique=True),
        data=st.data(),
    )
    @settings(max_examples=50)
    def test_the_greedy_choice_against_all_choices(self, vectors, data):
        """Slow twin of the matroid: try every subset of the largest size."""
        problem, _, _ = made_problem(count=3, width=30)
        rows = torch.tensor(vectors, dtype=torch.float64)
        rows = rows / rows.norm(dim=1, keepdim=True)
        weights = data.draw(st.lists(st.integers(1, 50), min_size=len(rows), max_size=len(rows)))
        order = sorted(range(len(rows)), key=lambda row: -weights[row])
        basis = heaviest_basis(problem, rows[order])
        size = int(torch.linalg.matrix_rank(rows))
        independent = [
            sum(weights[row] for row in chosen)
            for chosen in itertools.combinations(range(len(rows)), size)
            if int(torch.linalg.matrix_rank(rows[list(chosen)])) == size
        ]
        kept = [int((rows == row).all(dim=1).nonzero()[0]) for row in basis]
        assert len(set(kept)) == size
        assert int(torch.linalg.matrix_rank(basis)) == size
        assert sum(weights[row] for row in kept) == max(independent)

    def test_of_no_rows_is_empty(self):
        problem, rows, _ = made_problem()
        assert heaviest_basis(problem, rows[:0]).shape == (0, 6)
