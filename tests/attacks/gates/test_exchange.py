"""Choosing rows jointly: estimates against slow twins, wrong rows corrected."""

import itertools
import math
from dataclasses import replace

import pytest
import torch

from exhume.attacks.gates import exchange
from exhume.attacks.gates.exchange import (
    MOST_OUTSIDE,
    WORTH,
    ClassifiedRows,
    _promising_exchanges,
    exchange_rows,
    joint_score,
    read_codes,
)
from exhume.attacks.gates.firing import UNFORESEEN
from tests.attacks.gates.victims import cosines, made_problem, mix_rows, random_rows, solved_problem


class TestExchange:
    def test_estimated_gains_are_those_that_exchanges_bring(self, monkeypatch):
        problem, rows, _ = solved_problem()
        monkeypatch.setattr(exchange, "MOVED_INPUTS", len(rows))  # with all inputs scored the estimate is exact
        start = random_rows(problem, problem.rank, seed=1)
        proposals = torch.cat([rows, random_rows(problem, 5, seed=1)])
        every = ClassifiedRows.of(problem, start), ClassifiedRows.of(problem, proposals)
        trials = _promising_exchanges(problem, *every)
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


def test_inputs_are_read_out_up_to_scale():
    problem, rows, inputs = made_problem()
    read = read_codes(problem, rows) @ problem.basis.T
    assert float(cosines(read, inputs).diagonal().min()) > 1 - 1e-9


def test_replaced_rows_are_classified_as_if_anew():
    problem, rows, _ = solved_problem()
    others = random_rows(problem, 4)
    replaced = ClassifiedRows.of(problem, rows).replaced([2, 5], ClassifiedRows.of(problem, others), [3, 0])
    anew = rows.clone()
    anew[2], anew[5] = others[3], others[0]
    expected = ClassifiedRows.of(problem, anew)
    for name in ("rows", "zeros", "evidence"):
        assert torch.equal(getattr(replaced, name), getattr(expected, name))
    assert replaced.score(problem) == pytest.approx(joint_score(problem, anew))


def test_inputs_outside_their_range_score_less():
    problem, rows, inputs = solved_problem()
    codes = inputs @ problem.basis
    inside = codes.mean(dim=0, keepdim=True)
    for box, cost in ((inside, 0), (-inside, len(rows)), ((-inside).repeat(100, 1), MOST_OUTSIDE * len(rows))):
        lost = joint_score(problem, rows) - joint_score(replace(problem, box=box), rows)
        assert lost == pytest.approx(cost)


def test_an_entry_far_from_firing_costs_more_than_a_zero():
    problem, rows, inputs = solved_problem()
    present = ClassifiedRows.of(problem, rows)
    distance = -torch.maximum(inputs[0] @ problem.before.T, inputs[0] @ problem.after.T)
    far = int((distance * present.zeros[0]).argmax())
    zeros = present.zeros.clone()
    zeros[0, far] = False
    changed = ClassifiedRows(rows, zeros, present.evidence)  # the same evidence, so only the unit's surprise differs
    assert 0 < present.score(problem) - changed.score(problem) < -math.log(UNFORESEEN) / WORTH + 1e-9
