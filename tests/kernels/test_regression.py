"""Kernel regression: interpolation, jitter, and a wide network trained to the end."""

import pytest
import torch

from exhume import MLP, load, train
from exhume.core.errors import ExhumeError
from exhume.kernels import InfiniteNTK, KernelRegression, add_jitter, solve_duals
from exhume.training import predict


def points(count, size=12, seed=0):
    return torch.randn(count, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_regression_interpolates_without_jitter_and_nearly_with_it():
    kernel, inputs, targets = InfiniteNTK(), points(8), points(8, 2, seed=1)
    assert torch.allclose(KernelRegression.fit(kernel, inputs, targets, jitter=0.0)(inputs), targets, atol=1e-8)
    off = KernelRegression.fit(kernel, inputs, targets)(inputs) - targets
    assert 0 < off.abs().max() < 1e-2


def test_jitter_is_relative_to_the_mean_of_the_diagonal():
    kernel = torch.tensor([[1.0, 0.5], [0.5, 3.0]])
    assert torch.allclose(add_jitter(kernel, 0.1), kernel + 0.2 * torch.eye(2))


def test_jitter_makes_coinciding_inputs_solvable():
    inputs = points(3)[[0, 0, 1]]
    kernel = InfiniteNTK()(inputs)
    assert torch.isfinite(solve_duals(kernel, points(3, 1), 1e-5)).all()
    with pytest.raises(ExhumeError, match="not positive definite"):
        solve_duals(kernel - 0.1 * torch.eye(3), points(3, 1), 0.0)


def test_gradients_of_predictions_equal_autograd():
    regression = KernelRegression.fit(InfiniteNTK(), points(6), points(6, 2, seed=1))
    queries = points(4, seed=2).requires_grad_()
    weights = points(4, 2, seed=3)
    (weights * regression(queries)).sum().backward()
    predictions, vjp = regression.with_vjp(queries.detach())
    assert torch.allclose(predictions, regression(queries.detach()))
    assert torch.allclose(vjp(weights), queries.grad)


def test_squared_norm_is_that_of_the_targets_in_the_inverse_kernel():
    inputs, targets = points(5), points(5, 1, seed=1)
    regression = KernelRegression.fit(InfiniteNTK(), inputs, targets, jitter=0.0)
    expected = targets.T @ torch.linalg.solve(InfiniteNTK()(inputs), targets)
    assert regression.squared_norm == pytest.approx(expected.item(), rel=1e-6)


def test_a_wide_linearised_network_predicts_what_the_kernel_does():
    data = load("digits", classes="odd-even", size=16, test=200)
    model = MLP(width=4096, depth=1)
    victim = train(data, model=model, linearised=True, precision="float64", device="cpu")
    at_start = predict(train(data, model=model, steps=0, device="cpu"), data.test.inputs)
    moved = predict(victim, data.test.inputs) - at_start
    start = predict(train(data, model=model, steps=0, device="cpu"), data.train.inputs)
    residual = 2.0 * data.train.labels[:, None] - 1.0 - start
    inputs = data.to_model(data.train.inputs).double()
    regression = KernelRegression.fit(InfiniteNTK.of(model), inputs, residual.double(), jitter=0.0)
    expected = regression(data.to_model(data.test.inputs).double())
    assert (moved - expected).norm() < 0.1 * expected.norm()
