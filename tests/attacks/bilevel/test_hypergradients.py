"""Hyper-gradients against finite differences and dense linear algebra, in float64."""

import functools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import exhume
from exhume.attacks.bilevel.hypergradients import Implicit, TrainingProblem, Unrolled, conjugate_gradients, one_step
from exhume.attacks.stationarity.multipliers import TiedMultipliers
from exhume.attacks.stationarity.problem import StationarityProblem
from exhume.clues.search_space import SearchSpace
from exhume.models.convnet import ConvNet
from exhume.records import AttackerView
from exhume.training.losses import LOSSES

DECAY = 0.05
NETWORKS = {
    "affine": exhume.MLP(depth=0),
    "one hidden layer": exhume.MLP(width=6, depth=1, activation="softplus"),
    "one hidden layer, relu": exhume.MLP(width=6, depth=1),
    "two hidden layers, ntk": exhume.MLP(width=5, depth=2, activation="tanh", parameterisation="ntk"),
    "convolutional": ConvNet(channels=2, depth=1, activation="silu"),
}
LOWER = {
    "implicit": Implicit(tolerance=1e-12),
    "unrolled": Unrolled(steps=7, rate=0.3, momentum=0.6),
    "unrolled, one step": one_step(DECAY),
    "unrolled, plain": Unrolled(steps=16, rate=0.2),
}


@functools.cache
def pose_problem(network: str, loss: str = "ce"):
    """Return a training problem of few images, weights to begin at, and inputs."""
    data = exhume.load("digits", classes="0,1,2" if loss == "ce" else "odd-even", size=6, test=0)
    generator = torch.Generator().manual_seed(0)
    model = NETWORKS[network].build(data.input_shape, 3 if loss == "ce" else 1, generator)
    view = AttackerView(model=model, final=model.state_dict(), input_shape=data.input_shape)
    targets = LOSSES[loss].encode(data.train.labels, len(data.classes))
    problem = TrainingProblem.of(view, LOSSES[loss], targets, DECAY, torch.float64)
    return problem, problem.flat(view.final), data.train.inputs.double().flatten(1)


def slopes(lower, problem, start, inputs, seed=1):
    """Return the derivative of a random linear function of the trained weights along random inputs, twice."""
    generator = torch.Generator().manual_seed(seed)
    along = torch.randn(inputs.shape, generator=generator, dtype=torch.float64)
    cotangent = torch.randn(start.shape, generator=generator, dtype=torch.float64)
    ours = (lower(problem, start, inputs)[1](cotangent) * along).sum()
    step = 1e-5
    ends = [lower(problem, start, inputs + sign * step * along)[0] @ cotangent for sign in (1, -1)]
    return float(ours), float((ends[0] - ends[1]) / (2 * step))


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("lower", ["unrolled", "unrolled, one step", "unrolled, plain"])
def test_unrolled_gradients_are_finite_differences(network, lower):
    ours, slow = slopes(LOWER[lower], *pose_problem(network))
    assert ours == pytest.approx(slow, rel=1e-5)


@pytest.mark.parametrize("loss", ["ce", "bce", "mse"])
def test_implicit_gradients_of_a_convex_problem_are_finite_differences(loss):
    for seed in range(3):
        ours, slow = slopes(LOWER["implicit"], *pose_problem("affine", loss), seed=seed)
        assert ours == pytest.approx(slow, rel=1e-5)


def test_implicit_gradients_hold_at_any_strict_minimum():
    problem, start, inputs = pose_problem("one hidden layer")
    rest = Unrolled(steps=400, rate=0.5, momentum=0.8)(problem, start, inputs)[0]
    ours, slow = slopes(LOWER["implicit"], problem, rest, inputs)
    assert ours == pytest.approx(slow, rel=1e-5)


def test_long_unrolled_training_tends_to_the_implicit_solution():
    problem, start, inputs = pose_problem("affine")
    cotangent = torch.randn(start.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    long = Unrolled(steps=250, rate=0.5, momentum=0.75)(problem, start, inputs)
    rest = LOWER["implicit"](problem, start, inputs)
    assert torch.allclose(long[0], rest[0], atol=1e-9)
    assert torch.allclose(long[1](cotangent), rest[1](cotangent), atol=1e-8)


def test_the_gradient_vanishes_at_rest_from_any_start():
    problem, start, inputs = pose_problem("affine")
    for scale in (0.0, 1.0, 100.0):
        rest = Implicit(newton_steps=40).rest(problem, scale * start, inputs)
        assert problem.gradient(rest, inputs).norm() < 1e-8


def test_the_pullback_recomputes_the_states_it_did_not_keep():
    problem, start, inputs = pose_problem("one hidden layer")
    lower = Unrolled(steps=11, rate=0.3, momentum=0.5)  # kept: 0, 3, 6, 9; the last stretch is short
    cotangent = torch.ones_like(start)

    def slow(given):
        weights, motion = start, torch.zeros_like(start)
        for _ in range(lower.steps):
            weights, motion = lower.advance(problem, given, weights, motion)
        return weights @ cotangent

    expected = torch.func.grad(slow)(inputs)
    assert torch.allclose(lower(problem, start, inputs)[1](cotangent), expected, atol=1e-12)


@pytest.mark.parametrize("network", ["affine", "one hidden layer", "one hidden layer, relu"])
def test_one_step_is_the_tied_stationarity_residual(network):
    problem, start, inputs = pose_problem(network)
    weights, pullback = one_step(DECAY)(problem, start, inputs)
    left = weights - start
    view = AttackerView(
        model=problem.model, final={**problem.named(start), **problem.fixed}, input_shape=problem.input_shape
    )
    tied = TiedMultipliers(problem.loss, problem.targets, 1 / (len(inputs) * DECAY))
    kkt = StationarityProblem.of(view, SearchSpace(inputs.shape[1]), tied, dtype=torch.float64)
    duals = kkt.duals(inputs, torch.zeros(1, dtype=torch.float64))
    value = kkt.sums.squared_residual(kkt.target, inputs, duals[None])[0]
    assert float(left @ left) == pytest.approx(float(value), rel=1e-9)
    by_inputs = kkt.objective(inputs, torch.zeros(1, dtype=torch.float64), None, torch.zeros(()))[1][0]
    assert torch.allclose(pullback(2 * left), by_inputs, rtol=1e-7, atol=1e-10)


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


def test_flat_weights_convert_back_to_named_weights():
    problem, start, _ = pose_problem("convolutional")
    named = problem.named(start)
    assert torch.equal(problem.flat(named), start)
    assert list(named) == [name for name, _ in problem.model.named_parameters()]
    assert not isinstance(problem.model, nn.Linear)


def test_work_that_cannot_stop_early_has_the_same_result(monkeypatch):
    """As recorded on a GPU: every iteration runs, and those after the end change nothing."""
    problem, start, inputs = pose_problem("affine")
    lower = Implicit(newton_steps=9, iterations=60, tolerance=1e-9)
    cotangent = torch.ones_like(start)
    weights, pullback = lower(problem, start, inputs)
    gradient = pullback(cotangent)
    monkeypatch.setattr("exhume.attacks.bilevel.hypergradients.can_read", lambda _: False)
    blind, blind_pullback = lower(problem, start, inputs)
    assert torch.allclose(blind, weights, atol=1e-9)
    assert torch.allclose(blind_pullback(cotangent), gradient, atol=1e-7)
