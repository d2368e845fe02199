"""Implicit hypergradients against finite differences and dense linear algebra, in float64."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from exhume.hypergradients import Implicit, MomentumRule, Unrolled
from exhume.hypergradients.implicit import conjugate_gradients
from tests.hypergradients.problems import pose_problem, slopes

IMPLICIT = Implicit(tolerance=1e-12)


@pytest.mark.parametrize("loss", ["ce", "bce", "mse"])
def test_implicit_gradients_of_a_convex_problem_are_finite_differences(loss):
    for seed in range(3):
        ours, slow = slopes(IMPLICIT, *pose_problem("affine", loss), seed=seed)
        assert ours == pytest.approx(slow, rel=1e-5)


def test_implicit_gradients_hold_at_any_strict_minimum():
    problem, start, inputs = pose_problem("one hidden layer")
    rest = Unrolled(steps=400, rate=0.5, rule=MomentumRule(momentum=0.8))(problem, start, inputs)[0]
    ours, slow = slopes(IMPLICIT, problem, rest, inputs)
    assert ours == pytest.approx(slow, rel=1e-5)


def test_long_unrolled_training_tends_to_the_implicit_solution():
    problem, start, inputs = pose_problem("affine")
    cotangent = torch.randn(start.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    long = Unrolled(steps=250, rate=0.5, rule=MomentumRule(momentum=0.75))(problem, start, inputs)
    rest = IMPLICIT(problem, start, inputs)
    assert torch.allclose(long[0], rest[0], atol=1e-9)
    assert torch.allclose(long[1](cotangent), rest[1](cotangent), atol=1e-8)


def test_the_gradient_vanishes_at_rest_from_any_start():
    problem, start, inputs = pose_problem("affine")
    for scale in (0.0, 1.0, 100.0):
        rest = Implicit(newton_steps=40).rest(problem, scale * start, inputs)
        assert problem.gradient(rest, inputs).norm() < 1e-8


@given(st.integers(1, 12), st.integers(0, 1000))
def test_conjugate_gradients_solve_what_a_dense_solver_solves(size, seed):
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(size, size, generator=generator, dtype=torch.float64)
    matrix = root @ root.T + 0.1 * torch.eye(size, dtype=torch.float64)
    right = torch.randn(size, generator=generator, dtype=torch.float64)
    solved = conjugate_gradients(lambda v: matrix @ v, right, iterations=10 * size, tolerance=1e-13)
    assert torch.allclose(matrix @ solved, right, atol=1e-8)


def test_conjugate_gradients_stop_at_negative_curvature_and_at_zero():
    indefinite = torch.diag(torch.tensor([1.0, -1.0]).double())
    right = torch.tensor([1.0, 0.1]).double()
    found = conjugate_gradients(lambda v: indefinite @ v, right, iterations=50)
    assert torch.isfinite(found).all()
    assert found @ right > 0
    nothing = torch.zeros(2).double()
    assert torch.equal(conjugate_gradients(lambda v: indefinite @ v, nothing, iterations=5), nothing)


def test_work_that_cannot_stop_early_has_the_same_result(monkeypatch):
    """As recorded on a GPU: every iteration runs, and those after the end change nothing."""
    problem, start, inputs = pose_problem("affine")
    lower = Implicit(newton_steps=9, iterations=60, tolerance=1e-9)
    cotangent = torch.ones_like(start)
    weights, pullback = lower(problem, start, inputs)
    gradient = pullback(cotangent)
    monkeypatch.setattr("exhume.hypergradients.implicit.can_read", lambda _: False)
    blind, blind_pullback = lower(problem, start, inputs)
    assert torch.allclose(blind, weights, atol=1e-9)
    assert torch.allclose(blind_pullback(cotangent), gradient, atol=1e-7)
