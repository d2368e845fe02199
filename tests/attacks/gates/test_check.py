"""Checking rows: true rows agree with their inputs and give them back; the rules decide what passes."""

from dataclasses import replace

import pytest
import torch

from exhume.attacks.gates.check import check_rows, count_contradictions, measure_agreement
from exhume.attacks.gates.zeros import zero_width
from tests.attacks.gates.victims import mix_rows, solved_problem


def test_true_rows_agree_with_their_inputs_and_no_other():
    problem, rows, inputs = solved_problem()
    own = measure_agreement(problem, rows, inputs)
    others = measure_agreement(problem, rows, inputs.roll(1, dims=0))
    assert float(own.min()) > 0.97
    assert float(others.max()) < 0.8


def test_true_rows_give_their_inputs_back_with_a_tiny_p_value():
    problem, rows, inputs = solved_problem()
    checked = check_rows(problem, rows)
    assert checked.is_complete
    assert bool(checked.is_exact.all())
    assert float((checked.inputs - inputs).abs().max()) < 5e-3
    assert float(checked.log_p.max()) < -50


def test_contradictions_against_a_slow_twin():
    problem, rows, inputs = solved_problem()
    wrong = inputs.roll(1, dims=0)
    size, width = problem.normalise(rows).abs(), zero_width(problem, rows)
    for row in range(4):
        count = 0
        for unit in problem.informative.nonzero()[:, 0].tolist():
            on = min(float(wrong[row] @ problem.before[unit]), float(wrong[row] @ problem.after[unit])) > 0
            count += on and float(size[row, unit]) <= float(width[row])
            count -= float(width[row]) < float(size[row, unit]) <= 2 * float(width[row])
        found = float(count_contradictions(problem, rows, wrong)[row])
        assert found == pytest.approx(max(count, 0))
        assert count > 10


def test_a_wrong_row_spoils_the_input_of_another_and_shows_it():
    problem, rows, inputs = solved_problem()
    checked = check_rows(problem, mix_rows(rows, place=3, other=5))
    errors = (checked.inputs - inputs).abs().amax(dim=1)
    assert int(errors.argmax()) == 5
    assert int(checked.contradictions.argmax()) == 5
    assert not bool(checked.is_exact[5])


def test_with_rows_missing_inputs_are_fitted_and_not_complete():
    problem, rows, inputs = solved_problem()
    checked = check_rows(problem, rows[:12])
    assert not checked.is_complete
    assert float(torch.cosine_similarity(checked.inputs, inputs[:12]).min()) > 0.9


def test_the_rules_decide_what_passes():
    problem, rows, _ = solved_problem()
    checked = check_rows(problem, rows)
    allowed = replace(checked, contradictions=torch.full_like(checked.contradictions, 3.0))
    assert bool(allowed.is_exact.all())
    assert not bool(replace(allowed, contradictions=allowed.contradictions * 2).is_exact.any())
    wide = replace(allowed, contradictions=allowed.contradictions * 2, units=1500)
    assert bool(wide.is_exact.all()), "four of a thousand units are forgiven in a wide layer"
