"""Rounds: a search finds all rows, packs its state, and knows when it is stuck."""

import torch

from exhume.attacks.gates.rounds import UNTRIED, RowSearch
from tests.attacks.gates.victims import solved_problem


def new_search(seed=0):
    problem = solved_problem().problem
    return RowSearch(
        problem=problem,
        generator=torch.Generator().manual_seed(seed),
        starts=None,
        error_rate=1e-3,
        found=torch.zeros(0, problem.rank).to(problem.rows),
        warm=torch.zeros(0, len(problem.basis)).to(problem.rows),
    )


def test_rounds_find_most_rows_and_count_themselves():
    search = new_search()
    for _ in range(3):
        if not search.is_complete:
            search.run_round()
    rows = solved_problem().rows
    hit = (search.found @ rows.T).abs().amax(dim=1) > 0.999
    assert int(hit.sum()) >= 12
    assert search.most >= len(search.found)
    assert 1 <= search.best_round <= search.rounds <= 3
    assert search.tried >= 64


def test_a_packed_state_continues_the_same():
    whole, first, second = new_search(), new_search(), new_search(seed=5)
    whole.run_round()
    first.run_round()
    second.unpack(*first.pack())
    for search in (whole, second):
        search.run_round()
    assert torch.equal(whole.found, second.found)
    assert whole.pack()[0] == second.pack()[0]


def test_each_strategy_is_tried_once_before_any_is_repeated():
    search = new_search()
    count = len(search.problem.search.strategies)
    assert search.gains == [UNTRIED] * count
    assert search.used == [0] * count


def test_patience_counts_idle_rounds_and_rounds_since_the_best():
    search = new_search()
    assert not search.is_stuck(3)
    search.idle = 3
    assert search.is_stuck(3)
    search.idle, search.rounds, search.best_round = 0, 10, 1
    assert search.is_stuck(3)
    assert not search.is_stuck(4)
