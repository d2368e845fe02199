"""Choosing rows jointly: estimates against slow twins, wrong rows corrected."""

import itertools
from dataclasses import replace

import torch

from exhume.attacks.gates.exchange import _promising_exchanges, exchange_rows, joint_score
from exhume.attacks.gates.rules import SearchRules
from tests.attacks.gates.victims import mix_rows, random_rows, solved_problem


class TestExchange:
    def test_estimated_gains_are_those_that_exchanges_bring(self):
        problem, rows, _ = solved_problem()
        # With all inputs scored the estimate is exact.
        problem = replace(problem, search=SearchRules(moved_inputs=len(rows)))
        start = random_rows(problem, problem.rank, seed=1)
        proposals = torch.cat([rows, random_rows(problem, 5, seed=1)])
        trials = _promising_exchanges(problem, start, proposals)
        scores = []
        for proposal, place in trials:
            after = start.clone()
            after[place] = proposals[proposal]
            scores.append(joint_score(problem, after))
        assert len(trials) > 3
        assert all(after > joint_score(problem, start) for after in scores)
        # Estimates are in single precision: a gate at its edge may count differently.
        assert all(first >= second - 4 for first, second in itertools.pairwise(scores))

    def test_a_mixture_is_corrected(self):
        problem, rows, _ = solved_problem()
        found = exchange_rows(problem, mix_rows(rows), torch.cat([random_rows(problem, 8, seed=1), rows]))
        assert float((found * rows).sum(dim=1).abs().min()) > 1 - 1e-9

    def test_true_rows_stay(self):
        problem, rows, _ = solved_problem()
        proposals = torch.cat([mix_rows(rows), mix_rows(rows, 1, 2, -0.5), random_rows(problem, 8, seed=1)])
        assert torch.equal(exchange_rows(problem, rows, proposals), rows)

    def test_no_row_is_taken_twice(self):
        problem, rows, _ = solved_problem()
        found = exchange_rows(problem, random_rows(problem, problem.rank, seed=1), rows[:4])
        assert float(torch.linalg.svdvals(found)[-1]) > 1e-3

    def test_without_proposals_nothing_changes(self):
        problem, rows, _ = solved_problem()
        assert torch.equal(exchange_rows(problem, rows, rows[:0]), rows)
