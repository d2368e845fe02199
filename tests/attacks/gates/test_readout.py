"""Reading out inputs: missing directions contain what is missing, and zeros alone determine an input's direction."""

from dataclasses import replace

import torch

from exhume.attacks.gates.readout import choose_sign, divide_by_constant, fit_inputs, missing_directions
from tests.attacks.gates.victims import made_problem, solved_problem


def test_missing_directions_contain_the_missing_inputs_and_no_others():
    problem, rows, inputs = solved_problem()
    found, missing = list(range(0, 16, 2)), list(range(1, 16, 2))
    directions, strengths = missing_directions(problem, rows[found])
    assert directions.shape[1] == len(strengths) == len(missing)
    spanned = torch.linalg.qr(inputs[missing].T).Q
    assert float(torch.linalg.svdvals(directions.T @ spanned).min()) > 1 - 1e-5
    outside = inputs[found] - inputs[found] @ directions @ directions.T
    assert float((outside.norm(dim=1) / inputs[found].norm(dim=1)).min()) > 0.05


def test_nothing_is_missing_when_all_rows_are_found():
    problem, rows, _ = solved_problem()
    assert missing_directions(problem, rows)[0].shape[1] == 0
    everything, strengths = missing_directions(problem, rows[:0])
    torch.testing.assert_close(everything @ everything.T, problem.basis @ problem.basis.T)
    torch.testing.assert_close(strengths, problem.strengths)


def test_inputs_are_fitted_to_zeros_alone():
    problem, rows, inputs = solved_problem()
    fitted = fit_inputs(problem, rows, problem.basis)
    assert float(torch.cosine_similarity(fitted, inputs).min()) > 0.9


def test_sign_and_scale_come_from_the_constant():
    problem, rows, inputs = solved_problem()
    turned = -3.0 * inputs
    torch.testing.assert_close(divide_by_constant(problem, turned), inputs)
    torch.testing.assert_close(choose_sign(problem, rows, turned), 3.0 * inputs)


def test_without_a_bias_the_zeros_decide_the_sign():

    problem, rows, inputs = solved_problem()
    without = replace(problem, has_bias=False)
    torch.testing.assert_close(choose_sign(without, rows, -inputs), inputs)
    torch.testing.assert_close(choose_sign(without, rows, inputs), inputs)
    assert divide_by_constant(without, inputs) is inputs


def test_a_tiny_change_leaves_the_scale_of_inputs():
    # A saturated softmax leaves gradients of 1e-32.
    problem, rows, inputs = made_problem()
    tiny = replace(problem, strengths=1e-35 * problem.strengths)
    read = divide_by_constant(tiny, (tiny.change @ torch.linalg.inv(rows)).T)
    torch.testing.assert_close(read, inputs, rtol=1e-4, atol=1e-4)
