"""Choosing rows jointly: updates against slow twins, wrong rows put right, and what hangs on a choice found out."""

import pytest
import torch

from exhume.attacks.gates.check import PRECISE, check, shows_zero
from exhume.attacks.gates.exchange import _promising, evidence, exchanged, shifts, suits
from exhume.attacks.gates.near_duplicates import _independent, rivals, told_apart
from exhume.attacks.gates.rounds import BY_GATES, NARROWLY
from tests.attacks.gates.victims import draw, problem_of, true_rows, view_of, with_constant


@pytest.fixture(scope="module")
def known():
    """A problem with its answer: the rows and the inputs that trained the network."""
    data = draw(size=16)
    view = view_of(data)
    return problem_of(view), true_rows(view, data.train.inputs), with_constant(view, data.train.inputs)


def mixed(rows, place=3, other=5, part=0.3):
    """Return rows one of which has another mixed in."""
    wrong = rows.clone()
    wrong[place] = rows[place] + part * rows[other]
    wrong[place] /= wrong[place].norm()
    return wrong


def random_rows(problem, count):
    rows = torch.randn(count, problem.rank, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return rows / rows.norm(dim=1, keepdim=True)


def generator():
    return torch.Generator().manual_seed(0)


class TestExchanging:
    def test_promises_what_an_exchange_then_brings(self, known, monkeypatch):
        problem, rows, _ = known
        monkeypatch.setattr("exhume.attacks.gates.exchange.MOVED", len(rows))
        start, proposals = random_rows(problem, problem.rank), torch.cat([rows, random_rows(problem, 5)])
        trials = _promising(problem, start, proposals)
        values = []
        for proposal, place in trials:
            after = start.clone()
            after[place] = proposals[proposal]
            values.append(suits(problem, after))
        assert len(trials) > 3
        assert all(after > suits(problem, start) for after in values)
        assert values == sorted(values, reverse=True)

    def test_puts_a_mixture_right(self, known):
        problem, rows, _ = known
        found = exchanged(problem, mixed(rows), torch.cat([random_rows(problem, 8), rows]))
        assert float((found * rows).sum(dim=1).abs().min()) > 1 - 1e-9

    def test_leaves_the_truth_alone(self, known):
        problem, rows, _ = known
        proposals = torch.cat([mixed(rows), mixed(rows, 1, 2, -0.5), random_rows(problem, 8)])
        assert torch.equal(exchanged(problem, rows, proposals), rows)

    def test_never_takes_a_row_twice(self, known):
        problem, rows, _ = known
        found = exchanged(problem, random_rows(problem, problem.rank), rows[:4])
        assert float(torch.linalg.svdvals(found)[-1]) > 1e-3

    def test_without_proposals_nothing_changes(self, known):
        problem, rows, _ = known
        assert torch.equal(exchanged(problem, rows, rows[:0]), rows)

    def test_evidence_counts_zeros(self, known):
        problem, rows, _ = known
        zeros = shows_zero(problem, rows).sum(dim=1)
        assert bool((evidence(problem, rows) <= zeros).all())
        assert float(evidence(problem, rows).min()) > 0.8 * float(zeros.min())
        assert float(evidence(problem, random_rows(problem, 8)).max()) < 0.2 * float(zeros.min())


class TestShifts:
    def test_of_rows_without_rivals_are_none(self, known):
        problem, rows, _ = known
        assert float(shifts(problem, rows, rows).max()) < 1e-6
        assert float(shifts(problem, rows, random_rows(problem, 50)).max()) == 0

    def test_are_the_errors_that_a_rival_would_mend(self, known):
        problem, rows, inputs = known
        wrong = mixed(rows)
        errors = (check(problem, wrong).inputs - inputs).abs().amax(dim=1)
        moves = shifts(problem, wrong, rows)
        # The mixture's own input is right, and the input of what is mixed in is the one that it spoils.
        assert int(errors.argmax()) == 5
        assert float(errors[5]) > 10 * PRECISE
        assert float(moves[5]) == pytest.approx(float(errors[5]), rel=1e-3)
        # Which of the two is mixed is open, so both inputs hang on it, and no other does.
        assert float(moves[[i for i in range(len(rows)) if i not in (3, 5)]].max()) < PRECISE

    def test_of_true_rows_stay_small_with_rivals_searched_for(self, known):
        problem, rows, _ = known
        assert float(shifts(problem, rows, rivals(problem, rows, generator())).max()) < PRECISE

    def test_show_what_a_wrong_row_spoils_with_rivals_searched_for(self, known):
        problem, rows, inputs = known
        wrong = mixed(rows)
        errors = (check(problem, wrong).inputs - inputs).abs().amax(dim=1)
        is_determined = shifts(problem, wrong, rivals(problem, wrong, generator())) <= PRECISE
        assert float(errors[is_determined].max()) < PRECISE


class TestTellingApart:
    def test_finds_the_row_that_is_missing(self, known):
        problem, rows, _ = known
        found = told_apart(problem, rows[1:], (BY_GATES, NARROWLY), generator())
        assert float((found @ rows.T).abs().amax(dim=0).min()) > 0.999

    def test_leaves_many_missing_rows_to_the_search(self, known):
        problem, rows, _ = known
        assert torch.equal(told_apart(problem, rows[9:], (BY_GATES, NARROWLY), generator()), rows[9:])

    def test_rows_that_others_span_are_left_out(self, known):
        _, rows, _ = known
        sum_of_two = (rows[0] + rows[1])[None] / (rows[0] + rows[1]).norm()
        assert torch.equal(_independent(torch.cat([rows[:2], sum_of_two, rows[2:]])), rows)
