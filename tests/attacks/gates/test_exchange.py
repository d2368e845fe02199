"""Choosing rows jointly: estimates against slow twins, wrong rows corrected, and inputs that depend on a choice."""

import itertools
from dataclasses import replace

import pytest
import torch

from exhume.attacks.gates.check import check_rows
from exhume.attacks.gates.exchange import _promising_exchanges, exchange_rows, joint_score, sensitivity_to_rivals
from exhume.attacks.gates.near_duplicates import find_rivals
from exhume.attacks.gates.rules import CertificateRules, SearchRules
from tests.attacks.gates.victims import mix_rows, random_rows, solved_problem

PRECISION = CertificateRules().precision


def generator():
    return torch.Generator().manual_seed(0)


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


class TestSensitivity:
    def test_is_zero_without_rivals(self):
        problem, rows, _ = solved_problem()
        assert float(sensitivity_to_rivals(problem, rows, rows).max()) < 1e-6
        assert float(sensitivity_to_rivals(problem, rows, random_rows(problem, 50, seed=1)).max()) == 0

    def test_is_the_error_that_a_rival_would_correct(self):
        problem, rows, inputs = solved_problem()
        wrong = mix_rows(rows)
        errors = (check_rows(problem, wrong).inputs - inputs).abs().amax(dim=1)
        moves = sensitivity_to_rivals(problem, wrong, rows)
        # The mixture's own input is right; it spoils the input of the row that is mixed in.
        assert int(errors.argmax()) == 5
        assert float(errors[5]) > 10 * PRECISION
        assert float(moves[5]) == pytest.approx(float(errors[5]), rel=1e-3)
        # Which of the two is mixed is open, so both inputs depend on it, and no other does.
        assert float(moves[[i for i in range(len(rows)) if i not in (3, 5)]].max()) < PRECISION

    def test_of_true_rows_is_small_with_rivals_searched_for(self):
        problem, rows, _ = solved_problem()
        assert float(sensitivity_to_rivals(problem, rows, find_rivals(problem, rows, generator())).max()) < PRECISION

    def test_shows_what_a_wrong_row_spoils_with_rivals_searched_for(self):
        problem, rows, inputs = solved_problem()
        wrong = mix_rows(rows)
        errors = (check_rows(problem, wrong).inputs - inputs).abs().amax(dim=1)
        moves = sensitivity_to_rivals(problem, wrong, find_rivals(problem, wrong, generator()))
        assert float(errors[moves <= PRECISION].max()) < PRECISION
