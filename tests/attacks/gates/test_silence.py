"""Silence: which units an input left off, and how certainly."""

import math
from dataclasses import replace

import torch

from exhume.attacks.gates.silence import rank_silence
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


def test_in_the_state_of_an_optimiser_the_pre_activation_alone_counts():
    problem, _, inputs = made_problem()
    local = replace(problem, before=problem.after)
    codes = inputs @ problem.basis
    scores, margins = rank_silence(local, codes), codes @ local.gates[1].T
    is_off = (margins < 0) & problem.informative.bool()
    torch.testing.assert_close(scores[is_off], 2 * margins[is_off].abs().log())
    exact = rank_silence(replace(local, gates_are_exact=True), codes)
    assert not torch.allclose(exact[is_off], scores[is_off])


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
