"""The row of one input against sums of rows, in one gradient, a training and an optimiser's state."""

import functools
import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from scipy.stats import poisson

from exhume.attacks.gates.certificate import Certificate, Doubt, doubt_sums, doubt_values
from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.rules import CertificateRules
from exhume.attacks.gates.sums import OffUnits, explain_rows, log_odds_one, log_p_one, measure_off_units
from exhume.models.mlp import MLP
from tests.attacks.gates.evidence_victims import gradient_view, state_view
from tests.attacks.gates.victims import draw, problem_of, random_rows, solved_problem, true_rows, with_constant

RULES = CertificateRules()
RATE = RULES.error_rate
KINDS = ("gradient", "training", "buffer")


@functools.cache
def solved(kind: str):
    """Return the problem of a network trained on 16 digits, its rows and its inputs, by what the attacker holds."""
    if kind == "training":
        return solved_problem()
    data = draw(size=16)
    is_gradient = kind == "gradient"
    view = gradient_view(data, MLP(width=256, depth=2)) if is_gradient else state_view(data, optimiser="SGD", steps=20)
    return problem_of(view), true_rows(view, data.train.inputs), with_constant(view, data.train.inputs)


def sums_of(rows, inputs, weight=0.5):
    """Return the sums of each row and the next one, with the averages that they are read as."""
    after = torch.arange(1, len(rows) + 1) % len(rows)
    shares = torch.tensor([weight, 1 - weight], dtype=rows.dtype)
    return shares[0] * rows + shares[1] * rows[after], shares[0] * inputs + shares[1] * inputs[after]


def doubts_of(problem, rows, inputs):
    nothing = Certificate(doubts=[Doubt.NONE] * len(rows), errors=torch.zeros(len(rows)))
    if problem.gates_are_exact and problem.has_exact_signals:
        return doubt_values(nothing, problem, rows, explain_rows(problem, rows, inputs))[0].doubts
    return doubt_sums(nothing, problem, rows, inputs).doubts


def measure_unexplained(problem, rows, inputs):
    return explain_rows(problem, rows, inputs).unexplained


@pytest.mark.parametrize("kind", KINDS)
class TestEveryEvidence:
    def test_rows_of_one_input_are_accepted(self, kind):
        assert doubts_of(*solved(kind)).count(Doubt.NONE) >= 15

    @pytest.mark.parametrize("weight", [0.5, 0.8])
    def test_sums_are_refused_where_every_row_is_one(self, kind, weight):
        problem, rows, inputs = solved(kind)
        assert Doubt.NONE not in doubts_of(problem, *sums_of(rows, inputs, weight))

    def test_a_sum_among_true_rows_is_refused_alone(self, kind):
        problem, rows, inputs = solved(kind)
        mixed, averages = sums_of(rows, inputs)
        wrong, read = torch.cat([mixed[:1], rows[1:]]), torch.cat([averages[:1], inputs[1:]])
        doubts = doubts_of(problem, wrong, read)
        assert doubts[0] == Doubt.SUM
        assert doubts[1:].count(Doubt.NONE) >= 14

    def test_a_sum_of_three_is_refused(self, kind):
        problem, rows, inputs = solved(kind)
        mixed, averages = sums_of(*sums_of(rows, inputs))
        assert Doubt.NONE not in doubts_of(problem, mixed, averages)


class TestValues:
    @pytest.mark.parametrize("settings", [{}, {"seed": 3}, {"architecture": MLP(width=200, depth=3)}])
    def test_signals_explain_true_rows_to_the_noise(self, settings):
        data = draw(size=12)
        view = gradient_view(data, **settings)
        problem, rows = problem_of(view), true_rows(view, data.train.inputs)
        inputs = with_constant(view, data.train.inputs)
        assert float(measure_unexplained(problem, rows, inputs).max()) < RULES.widest_zero / 10
        assert float(measure_unexplained(problem, *sums_of(rows, inputs)).min()) > 10 * RULES.widest_zero

    def test_a_small_part_of_another_row_shows(self):
        problem, rows, inputs = solved("gradient")
        mixed, averages = sums_of(rows / rows.norm(dim=1, keepdim=True), inputs, weight=0.99)
        assert float(measure_unexplained(problem, mixed, averages).min()) > RULES.widest_zero

    def test_against_least_squares_by_the_signals(self):
        problem, rows, inputs = solved("gradient")
        margins = inputs @ problem.before.T
        signals = problem.signals[0](margins)
        for one in range(3):
            entries = problem.normalise(rows + 0.1 * rows.roll(1, 0))[one] * problem.informative
            answer = torch.linalg.lstsq(signals[one].T, entries[:, None]).solution
            rest = entries - (signals[one].T @ answer)[:, 0]
            share = measure_unexplained(problem, rows + 0.1 * rows.roll(1, 0), inputs)[one]
            assert math.isclose(float(share), float(rest.norm() / entries.norm()), rel_tol=1e-6)

    def test_several_gradients_have_residuals_of_their_own(self):
        problem, rows, inputs = solved("gradient")
        width = problem.before.shape[0]
        both = replace(
            problem,
            rows=torch.cat([problem.rows, problem.rows], dim=1),
            before=problem.before.repeat(2, 1),
            after=problem.after.repeat(2, 1),
            informative=problem.informative.repeat(2),
            blocks=2,
            signals=(lambda margins: problem.signals[0](margins[:, :width]).repeat(1, 1, 2),),
        )
        turned = replace(both, rows=both.rows * torch.cat([torch.ones(width), torch.full((width,), -2.0)]))
        assert float(measure_unexplained(turned, rows, inputs).max()) < RULES.widest_zero
        assert float(measure_unexplained(replace(turned, blocks=1), rows, inputs).max()) > RULES.widest_zero

    def test_separation_bounds_what_is_mixed_in_unnoticed(self):
        """Slow twin: the least that the signals leave of any combination of the other rows, by least squares."""
        problem, rows, inputs = solved("gradient")
        explained = explain_rows(problem, rows, inputs)
        entries = problem.normalise(rows) / problem.units**0.5
        generator = torch.Generator().manual_seed(0)
        for row in range(3):
            signals = problem.signals[0]((inputs @ problem.before.T)[row : row + 1])[0]
            others = torch.cat([entries[:row], entries[row + 1 :]])
            drawn = torch.randn(50, len(others), generator=generator, dtype=torch.float64)
            drawn /= drawn.norm(dim=1, keepdim=True)
            rest = drawn @ others
            rest = rest - (signals.T @ torch.linalg.lstsq(signals.T, rest.T).solution).T
            assert float(rest.norm(dim=1).min()) >= float(explained.separation[row])
        assert float(explained.separation.min()) > 0.01

    def test_parts_that_move_an_input_are_noticed(self):
        problem, rows, inputs = solved("gradient")
        nothing = Certificate(doubts=[Doubt.NONE] * len(rows), errors=torch.zeros(len(rows)))
        assert bool(doubt_values(nothing, problem, rows, explain_rows(problem, rows, inputs))[1].all())
        # With much noise nothing is noticed.
        noisy = replace(problem, noise=1e-2 * float(problem.strengths[-1]))
        assert not bool(doubt_values(nothing, noisy, rows, explain_rows(noisy, rows, inputs))[1].all())

    def test_an_input_of_the_same_gates_is_not_told_apart(self):
        problem, rows, inputs = solved("gradient")
        close = inputs.clone()
        close[1] = inputs[0] + 1e-6 * (inputs[1] - inputs[0])
        mixed = rows.clone()
        mixed[1] = rows[0]
        assert float(explain_rows(problem, mixed, close).separation[0]) < 1e-3

    def test_without_exact_signals_the_gates_decide(self):
        problem, rows, inputs = solved("gradient")
        blind = replace(problem, has_exact_signals=False, signals=())
        assert doubts_of(blind, rows, inputs).count(Doubt.NONE) >= 15
        assert Doubt.NONE not in doubts_of(blind, *sums_of(rows, inputs))

    def test_what_is_no_number_is_doubted(self):
        problem, rows, inputs = solved("gradient")
        assert Doubt.NONE not in doubts_of(problem, rows, inputs * math.nan)


def off_units(fired, firing, mixing=0.3) -> OffUnits:
    """Return units that are all off."""
    fired, firing = torch.as_tensor(fired), torch.as_tensor(firing, dtype=torch.float64)
    return OffUnits(
        is_off=torch.ones_like(fired), is_nonzero=fired, firing=firing, mixing=torch.full_like(firing, mixing)
    )


class TestGates:
    def test_the_null_is_exact(self):
        """Units that fire as the law says are refuted no more often than the p-value says."""
        generator = torch.Generator().manual_seed(0)
        firing = torch.rand(4000, 60, generator=generator, dtype=torch.float64).pow(4)
        fired = torch.rand(4000, 60, generator=generator, dtype=torch.float64) < firing
        p = log_p_one(off_units(fired, firing)).exp()
        for level in (0.1, 0.01, 1e-3):
            assert float((p < level).double().mean()) <= level

    def test_odds_of_sums_are_bounded(self):
        """Markov's inequality, on sums that are as the law of sums says."""
        generator = torch.Generator().manual_seed(0)
        firing = torch.rand(4000, 40, generator=generator, dtype=torch.float64).pow(4).clamp(RULES.unforeseen, 0.999)
        units = off_units(torch.zeros(4000, 40, dtype=torch.bool), firing)
        either = 1 - (1 - firing) * (1 - units.mixing)
        fired = torch.rand(4000, 40, generator=generator, dtype=torch.float64) < either
        odds = log_odds_one(replace(units, is_nonzero=fired))
        for level in (0.1, 0.01):
            assert float((odds > -math.log(level)).double().mean()) <= level

    def test_p_values_against_a_slow_twin(self):
        generator = torch.Generator().manual_seed(1)
        firing = torch.rand(1, 30, generator=generator, dtype=torch.float64).pow(3)
        fired = torch.rand(1, 30, generator=generator) < 0.3
        ordered = sorted(zip(firing[0].tolist(), fired[0].tolist(), strict=True))
        tails = [
            poisson.logsf(sum(hit for _, hit in ordered[:count]) - 1, sum(chance for chance, _ in ordered[:count]))
            for count in range(1, 31)
        ]
        expected = min(0.0, min(tails) + math.log(30))
        assert math.isclose(float(log_p_one(off_units(fired, firing))), expected, rel_tol=1e-9)

    def test_one_far_unit_may_fire_but_not_many(self):
        firing = torch.full((3, 100), RULES.unforeseen)
        fired = torch.arange(100) < torch.tensor([[0], [1], [8]])
        p = log_p_one(off_units(fired, firing))
        assert float(p[0]) == 0.0
        assert float(p[1]) > math.log(RATE)
        assert float(p[2]) < math.log(RATE)

    def test_units_near_their_gates_say_little(self):
        fired = torch.ones(1, 20, dtype=torch.bool)
        near, far = (off_units(fired, torch.full((1, 20), chance)) for chance in (0.9, 0.01))
        assert float(log_p_one(near)) > math.log(RATE) > float(log_p_one(far))
        assert float(log_odds_one(near)) > float(log_odds_one(far))

    def test_rows_are_refuted_together_that_are_not_refuted_alone(self):
        # As under augmentation: in every row a few units fire that its input leaves off.
        firing = torch.full((12, 100), RULES.unforeseen)
        units = off_units((torch.arange(100) < 3).expand(12, -1), firing)
        assert float(log_p_one(units).min()) > math.log(RATE / 12)
        together = units.pool(torch.ones(12, dtype=torch.bool))
        assert float(log_p_one(together)) < float(log_p_one(together, RULES.misjudged)) < math.log(RATE)

    def test_a_law_that_is_slightly_off_refutes_no_row(self):
        # Measured in a federated round: of 8 122 units, 491 fired where 320 were expected.
        firing = torch.full((1, 8122), 320 / 8122)
        units = off_units((torch.arange(8122) < 491)[None], firing)
        assert float(log_p_one(units)) < math.log(RATE) < float(log_p_one(units, RULES.misjudged))

    def test_small_variation_of_inputs_is_noticed(self):
        problem, rows, inputs = solved("training")
        entries = problem.normalise(rows)
        off = measure_off_units(problem, rows, inputs)
        firing = off.firing.masked_fill(~off.is_off, 2.0)
        for row, order in zip(entries, firing.argsort(dim=1), strict=True):
            row[order[:2]] = 0.5  # far units that fire now and then
        noisy = replace(problem, rows=torch.linalg.svd(entries, full_matrices=False).Vh)
        turned = torch.linalg.lstsq(noisy.rows.T, entries.T).solution.T
        assert set(doubts_of(noisy, turned, inputs)) == {Doubt.VARIED}

    def test_scales_without_a_bias_do_not_matter(self):
        problem, rows, inputs = solved("training")
        one, two = (measure_off_units(problem, rows, factor * inputs) for factor in (1.0, 5.0))
        torch.testing.assert_close(one.firing, two.firing)
        torch.testing.assert_close(one.mixing, two.mixing)

    def test_a_wider_network_gives_more_evidence(self):
        odds = []
        for width in (128, 256):
            problem, rows, inputs = solved_problem(width)
            odds.append(float(log_odds_one(measure_off_units(problem, rows, inputs)).median()))
        assert all(narrow < wide for narrow, wide in pairwise(odds))

    def test_one_input_alone_is_no_sum(self):
        problem, rows, inputs = solved("training")
        assert isinstance(problem, RowProblem)
        assert doubts_of(problem, rows[:1], inputs[:1]) == [Doubt.NONE]


def test_signals_explain_more_units_of_a_true_row_than_of_a_generic_vector():
    problem, rows, inputs = solved("gradient")
    assert float(explain_rows(problem, rows, inputs).log_p.max()) < -30
    assert float(explain_rows(problem, random_rows(problem, len(rows)), inputs).log_p.min()) == 0.0
