"""Rounds: a search finds all rows, packs its state, knows when it is done, and survives degenerate problems."""

from dataclasses import replace

import pytest
import torch

from exhume.attacks.gates.rounds import UNTRIED, RowSearch
from tests.attacks.gates.victims import cosines, made_problem, problem_of, random_change


def new_search(problem, seed=0, **settings):
    return RowSearch(
        problem=problem,
        generator=torch.Generator().manual_seed(seed),
        starts=None,
        **settings,
    )


def search_to_the_end(problem, rounds=8):
    search = new_search(problem)
    while search.rounds < rounds and not search.is_finished(3):
        search.run_round()
    return search


class TestSearch:
    @pytest.mark.parametrize(
        "settings",
        [
            {},
            {"outliers": 0.1},
            {"is_ratio_shared": True},
            {"has_bias": False},
            {"twins": 1, "closeness": 0.3, "width": 300, "outliers": 0.1},
        ],
        ids=str,
    )
    def test_made_rows_are_found(self, settings):
        problem, rows, _ = made_problem(**settings)
        search = search_to_the_end(problem)
        assert float(cosines(search.found, rows).amax(dim=0).min()) > 1 - 1e-6
        assert float(torch.linalg.svdvals(search.found)[-1]) > 1e-3

    def test_a_complete_search_settles_when_no_row_may_contain_another(self):
        search = search_to_the_end(made_problem().problem)
        assert search.is_settled
        assert search.is_finished(patience=100)

    def test_nothing_is_found_where_nothing_is(self):
        search = new_search(problem_of(random_change(inputs=6, width=128)[0]))
        for _ in range(2):
            search.run_round()
        assert len(search.pool) == 0
        assert search.idle == 2


class TestState:
    def test_a_packed_state_continues_the_same(self):
        problem = made_problem(count=4, twins=1).problem
        whole, first, second = new_search(problem), new_search(problem), new_search(problem, seed=5)
        whole.run_round()
        first.run_round()
        second.unpack(*first.pack())
        for _ in range(2):
            for search in (whole, second):
                search.run_round()
            assert torch.equal(whole.found, second.found)
            assert torch.equal(whole.pool, second.pool)
            assert torch.equal(whole.weights, second.weights)
            assert whole.pack()[0] == second.pack()[0]

    def test_a_round_that_is_stopped_leaves_the_packed_state_valid(self):
        class StopError(Exception):
            pass

        calls = []

        def stop():
            calls.append(None)
            if len(calls) == 2:
                raise StopError

        problem = made_problem(count=4, twins=1).problem
        whole, stopped = new_search(problem), new_search(problem)
        for search in (whole, stopped):
            search.run_round()
        before = stopped.pack()
        stopped.tick = stop
        with pytest.raises(StopError):
            stopped.run_round()
        resumed = new_search(problem, seed=9)
        resumed.unpack(*before)
        for search in (whole, resumed):
            search.run_round()
        assert torch.equal(whole.found, resumed.found)
        assert whole.pack()[0] == resumed.pack()[0]

    def test_all_ways_are_untried_at_first(self):
        search = new_search(made_problem().problem)
        assert search.gains == [UNTRIED] * 4
        assert search.used == [0] * 4

    def test_patience_counts_idle_rounds(self):
        search = new_search(made_problem().problem)
        assert not search.is_finished(3)
        search.idle = 3
        assert search.is_finished(3)
        assert not search.is_finished(4)

    def test_complete_rows_need_less_patience(self):
        search = new_search(made_problem().problem)
        search.found, search.idle = torch.eye(6, dtype=torch.float64), search.problem.search.patience
        assert not search.is_finished(100), "rows that are not in the pool are guesses"
        search.pool = search.found
        assert search.is_finished(100)


def with_copied_units(problem):
    """Return the problem with each unit twice."""
    return replace(
        problem,
        rows=torch.cat([problem.rows] * 2, dim=1) / 2**0.5,
        strengths=problem.strengths * 2**0.5,
        before=torch.cat([problem.before] * 2),
        after=torch.cat([problem.after] * 2),
        informative=torch.cat([problem.informative] * 2),
    )


def with_silent_units(problem):
    """Return the problem with as many units again that no input moved."""
    return replace(
        problem,
        rows=torch.cat([problem.rows, 0 * problem.rows], dim=1),
        before=torch.cat([problem.before, -problem.before]),
        after=torch.cat([problem.after, -problem.before]),
        informative=torch.cat([problem.informative, 0 * problem.informative]),
    )


DEGENERATE = {
    "one input": lambda: made_problem(count=1).problem,
    "two equal patterns": lambda: made_problem(count=2, twins=1, closeness=1e-6).problem,
    "copied units": lambda: with_copied_units(made_problem(count=4).problem),
    "silent units": lambda: with_silent_units(made_problem(count=4).problem),
    "gates of zero": lambda: replace(
        (problem := made_problem(count=3).problem), before=0 * problem.before, after=0 * problem.after
    ),
    "few units": lambda: made_problem(count=5, width=7).problem,
    "no noise": lambda: replace(made_problem(count=3).problem, noise=0.0),
    "much noise": lambda: replace(made_problem(count=3).problem, noise=1.0),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_problems_end_without_an_error(name):
    search = new_search(DEGENERATE[name]())
    for _ in range(3):
        search.run_round()
    assert bool(search.found.isfinite().all())
    assert bool(search.pool.isfinite().all())
    assert len(search.found) <= search.problem.rank
