"""Silence: which units an input left off, and how certainly."""

import math
from dataclasses import replace

import torch

from exhume.attacks.gates.silence import log_p_firing, rank_silence
from exhume.attacks.gates.zeros import classify_entries
from tests.attacks.gates.victims import made_problem, solved_problem


def test_scores_against_a_slow_twin():
    problem, _, inputs = made_problem()
    assert 0 < problem.units < problem.rows.shape[1], "some unit is silent"
    scores = rank_silence(problem, inputs @ problem.basis)
    change = problem.change @ problem.rows
    for given, row in zip(inputs, scores, strict=True):
        for unit in range(len(row)):
            ends = float(given @ problem.before[unit]), float(given @ problem.after[unit])
            if max(ends) >= 0 or not problem.informative[unit]:
                assert float(row[unit]) == -math.inf
            else:
                expected = math.log(ends[0] * ends[1] / float(change[:, unit].square().sum()))
                # The basis contains the input up to noise.
                assert math.isclose(float(row[unit]), expected, rel_tol=1e-6, abs_tol=1e-4)


def test_a_positive_factor_changes_no_rank():
    problem, _, inputs = solved_problem()
    codes = inputs @ problem.basis
    one, two = rank_silence(problem, codes), rank_silence(problem, 7.0 * codes)
    torch.testing.assert_close(one + 2 * math.log(7), two)


def test_units_that_fired_in_mid_training_rank_behind_others():
    problem, rows, inputs = made_problem(outliers=0.2, count=4, width=600)
    scores = rank_silence(problem, inputs @ problem.basis)
    is_zero = problem.normalise(rows).abs() < 1e-3
    for row, zero in zip(scores, is_zero, strict=True):
        order = row.argsort(descending=True)[: int(row.isfinite().sum())]
        best, worst = zero[order[:50]], zero[order[-50:]]
        assert float(best.double().mean()) > float(worst.double().mean())


def test_a_negative_factor_turns_gates_around():
    problem, _, inputs = made_problem()
    codes = inputs @ problem.basis
    assert not bool((rank_silence(problem, codes).isfinite() & rank_silence(problem, -codes).isfinite()).any())


class TestFiring:
    def test_silent_units_of_true_inputs_hardly_ever_fired(self):
        problem, rows, inputs = solved_problem()
        assert float(log_p_firing(problem, rows, inputs).min()) > math.log(1e-3 / len(rows))

    def test_the_sum_of_two_rows_fires_units_that_the_average_input_leaves_off(self):
        problem, rows, inputs = solved_problem()
        rows, inputs = rows.clone(), inputs.clone()
        rows[2], inputs[2] = rows[2] + rows[3], (inputs[2] + inputs[3]) / 2
        assert int(log_p_firing(problem, rows, inputs).argmin()) == 2
        assert float(log_p_firing(problem, rows, inputs)[2]) < math.log(1e-3 / len(rows))

    def test_one_unit_that_is_off_is_enough_where_no_gate_moved(self):
        problem, rows, inputs = solved_problem()
        exact = replace(problem, gates_are_exact=True, after=problem.before)
        entries = classify_entries(exact, rows).nonzero & exact.informative.bool()
        wrong = (entries & (inputs @ exact.before.T < -1e-3)).any(dim=1)
        assert log_p_firing(exact, rows, inputs).isinf().tolist() == wrong.tolist()
