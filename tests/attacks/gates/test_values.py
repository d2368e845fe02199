"""Rows by their values: one gradient below a linear output layer, from inputs that are off."""

from exhume.attacks.gates.rows import polish, rows_of_inputs
from exhume.attacks.gates.values import have_values, rows_by_values
from exhume.models.mlp import MLP
from tests.attacks.gates.evidence_victims import gradient_view, state_view
from tests.attacks.gates.victims import draw, made_problem, problem_of, true_rows, view_of, with_constant


def solved(size=24, width=256):
    data = draw(size=size)
    view = gradient_view(data, MLP(width=width, depth=1))
    problem = problem_of(view)
    return problem, true_rows(view, data.train.inputs), with_constant(view, data.train.inputs) @ problem.basis


def spoil(codes, share):
    """Mix another input into each one."""
    return (1 - share) * codes + share * codes.roll(1, 0)


def found(candidates, rows):
    return int(((candidates @ rows.T).abs() > 1 - 1e-6).any(dim=0).sum())


def test_true_inputs_give_their_rows_whatever_their_scale():
    problem, rows, codes = solved()
    assert have_values(problem)
    assert found(polish(problem, rows_by_values(problem, 3 * codes)), rows) == len(rows)


def test_values_find_more_rows_of_inexact_inputs_than_zeros_do():
    problem, rows, codes = solved()
    inexact = spoil(codes, 0.4)
    by_zeros = polish(problem, rows_of_inputs(problem, inexact, 3.0))
    by_values = polish(problem, rows_by_values(problem, inexact))
    assert found(by_values, rows) > found(by_zeros, rows)


def test_values_are_known_in_one_gradient_below_a_linear_output_layer_only():
    data = draw(size=10)
    assert have_values(problem_of(gradient_view(data, MLP(width=256, depth=1))))
    assert not have_values(problem_of(gradient_view(data, MLP(width=256, depth=2))))
    assert not have_values(problem_of(gradient_view(data, MLP(width=40, depth=1))))  # too few units
    assert not have_values(problem_of(state_view(data, MLP(width=256, depth=1), steps=5)))
    assert not have_values(problem_of(view_of(data, MLP(width=256, depth=1))))
    assert not have_values(made_problem()[0])


def test_no_inputs_give_no_rows():
    problem, _, codes = solved(size=10)
    assert len(rows_by_values(problem, codes[:0])) == 0
