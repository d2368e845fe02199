"""Choosing rows jointly: estimates against slow twins, wrong rows corrected."""

import itertools
import math
from dataclasses import replace

import pytest
import torch

from exhume.attacks.gates.exchange import (
    ClassifiedRows,
    Margins,
    _pair_with_places,
    _promising_exchanges,
    exchange_rows,
    joint_score,
    measure_rate,
    read_codes,
)
from exhume.attacks.gates.rules import SearchRules
from exhume.attacks.gates.zeros import find_zeros
from tests.attacks.gates.victims import cosines, made_problem, mix_rows, random_rows, solved_problem


class TestExchange:
    def test_estimated_gains_are_those_that_exchanges_bring(self):
        problem, rows, _ = solved_problem()
        every_input = replace(problem.search, group=len(rows))  # with all inputs scored the estimate is exact
        problem = replace(problem, search=every_input)
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
    for side, bounds, cost in ((inside, 2, 0), (-inside, 2, len(rows)), (-inside, 100, len(rows))):
        lost = joint_score(problem, rows) - joint_score(replace(problem, ends=side.repeat(bounds, 1)), rows)
        assert lost == pytest.approx(cost)


def test_an_entry_far_from_firing_costs_more_than_a_zero():
    problem, rows, inputs = solved_problem()
    present = ClassifiedRows.of(problem, rows)
    distance = -torch.maximum(inputs[0] @ problem.before.T, inputs[0] @ problem.after.T)
    far = int((distance * present.zeros[0]).argmax())
    zeros = present.zeros.clone()
    zeros[0, far] = False
    changed = ClassifiedRows(rows, zeros, present.evidence)  # the same evidence, so only the unit's surprise differs
    most = -math.log(problem.certificate.unforeseen) / math.log(problem.units)
    assert 0 < present.score(problem) - changed.score(problem) < most + 1e-9


def margins_of(problem, inputs):
    return Margins(inputs @ problem.before.T, inputs @ problem.after.T, inputs[:, :0])


class TestRate:
    """How often rows are zero at units that their inputs turn on from the start."""

    def test_true_rows_hardly_ever_are(self):
        problem, rows, inputs = solved_problem()
        assert measure_rate(problem, margins_of(problem, inputs), find_zeros(problem, rows)) < 0.01

    def test_rows_that_are_no_rows_do_not_change_it(self):
        problem, rows, inputs = solved_problem()
        zeros, margins = find_zeros(problem, rows), margins_of(problem, inputs)
        honest = measure_rate(problem, margins, zeros)
        zeros[: len(rows) // 2] = True
        assert measure_rate(problem, margins, zeros) == pytest.approx(honest, rel=1)

    def test_zeros_of_many_rows_are_a_rate(self):
        problem, rows, inputs = solved_problem()
        is_zero = torch.rand(find_zeros(problem, rows).shape, generator=torch.Generator().manual_seed(0)) < 0.2
        assert measure_rate(problem, margins_of(problem, inputs), is_zero) == pytest.approx(0.2, rel=0.3)

    def test_a_zero_where_all_rows_have_none_costs_more_than_it_brings(self):
        problem, rows, inputs = solved_problem()
        present = ClassifiedRows.of(problem, rows)
        on = int((inputs[0] @ problem.before.T * problem.informative * ~present.zeros[0]).argmax())
        zeros = present.zeros.clone()
        zeros[0, on] = True
        changed = ClassifiedRows(rows, zeros, present.evidence + (torch.arange(len(rows)) == 0))
        assert changed.score(problem) < present.score(problem)


def test_a_proposal_is_tried_where_a_row_fits_badly_though_it_is_a_small_part():
    parts = torch.tensor([[0.9, -0.8, 0.7, 0.6, 0.0, 0.2]])
    scores = torch.tensor([50.0, 40.0, 45.0, 60.0, 1.0, 2.0])
    proposals, places = _pair_with_places(SearchRules(group=3), parts, scores)
    assert proposals.tolist() == [0] * len(places)
    assert {0, 1, 2} < set(places.tolist()), "those it is mostly made of"
    assert 5 in places, "the one that fits worst"
    assert 4 not in places, "it is no part, so the rows would depend on each other"
