"""Distilled inputs as variables: gradients against autograd, the span of the data, and the least distance."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.core.errors import ExhumeError
from exhume.distillation.inducing_points import InducingPoints, push_away, span_axes
from exhume.distillation.kip import KIP, RKIP
from exhume.kernels import InfiniteNTK, add_jitter

KERNEL = InfiniteNTK(depth=2, width=64)


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def published_loss(method, examples, answers, inputs, targets):
    """Return the loss as the papers write it, for autograd."""
    within, across = KERNEL(inputs), KERNEL(inputs, examples)
    duals = torch.linalg.solve(add_jitter(within, method.jitter), targets)
    if isinstance(method, KIP):
        return 0.5 * (answers - across.T @ duals).square().mean()
    train = KERNEL(examples)
    alpha = torch.linalg.solve(add_jitter(train, method.jitter), answers)
    quadratic = (duals * (within @ duals)).sum() - 2 * (alpha * (across.T @ duals)).sum()
    return 0.5 * (quadratic + (alpha * (train @ alpha)).sum())


@settings(max_examples=15)
@given(kind=st.sampled_from([KIP, RKIP]), seed=st.integers(0, 10_000), outputs=st.integers(1, 3))
def test_values_and_gradients_equal_autograd(kind, seed, outputs):
    method = kind(jitter=1e-3, kernel=KERNEL)
    examples, answers = draw(9, 6, seed=seed), draw(9, outputs, seed=seed + 1)
    inputs = draw(4, 6, seed=seed + 2).requires_grad_()
    targets = draw(4, outputs, seed=seed + 3).requires_grad_()
    expected = published_loss(method, examples, answers, inputs, targets)
    expected.backward()
    problem = InducingPoints(
        kernel=KERNEL, loss=method.loss(examples, answers), examples=examples, targets=targets.detach()
    )
    value, (by_inputs, by_targets) = problem.objective((inputs.detach(), targets.detach()), torch.zeros(()))
    assert torch.allclose(value, expected.detach(), rtol=1e-9)
    assert torch.allclose(by_inputs, inputs.grad, rtol=1e-6, atol=1e-9)
    assert torch.allclose(by_targets, targets.grad, rtol=1e-6, atol=1e-9)


def test_the_penalty_on_nearness_has_its_own_gradient():
    examples, inputs = draw(9, 6), draw(4, 6, seed=1)
    near = examples[:4] + 0.3 * inputs
    loss = KIP(kernel=KERNEL).loss(examples, draw(9, 1, seed=2))

    def penalty(inputs):
        problem = {
            least: InducingPoints(
                kernel=KERNEL, loss=loss, examples=examples, targets=draw(4, 1, seed=3), min_distance=least
            ).objective((inputs,), torch.zeros(()))
            for least in (None, 2.0)
        }
        return problem[2.0][0] - problem[None][0], problem[2.0][1][0] - problem[None][1][0]

    step = 1e-6 * draw(4, 6, seed=4)
    value, gradient = penalty(near)
    assert value > 0
    change = (penalty(near + step)[0] - penalty(near - step)[0]) / 2
    assert torch.allclose(change, (gradient * step).sum(), rtol=1e-4, atol=1e-12)


def test_fixed_values_have_no_gradient():
    is_free = (draw(4, 6) > 0).double()
    loss = RKIP(kernel=KERNEL).loss(draw(9, 6, seed=1), draw(9, 1, seed=2))
    problem = InducingPoints(
        kernel=KERNEL, loss=loss, examples=draw(9, 6, seed=1), targets=draw(4, 1, seed=3), is_free=is_free
    )
    gradient = problem.objective((draw(4, 6, seed=4),), torch.zeros(()))[1][0]
    assert torch.equal(gradient != 0, is_free.bool())


def test_coordinates_in_the_span_have_the_same_kernel_and_gradients():
    inputs, weights = draw(9, 64), draw(9, 9, seed=1)
    axes = span_axes(inputs)
    table, vjp = KERNEL.with_vjp(inputs)
    small, small_vjp = KERNEL.with_vjp(inputs @ axes.T, size=64)
    assert torch.allclose(small, table, rtol=1e-9)
    assert torch.allclose(small_vjp(weights) @ axes, vjp(weights), rtol=1e-6, atol=1e-9)


def test_pushed_inputs_keep_their_distance_from_every_example():
    examples = draw(40, 5)
    made = examples[:10] + 0.01 * draw(10, 5, seed=1)
    far = push_away(made, examples, 0.8)
    assert torch.cdist(far, examples).min() >= 0.8
    assert torch.equal(push_away(far, examples, 0.5), far)
    with pytest.raises(ExhumeError, match="ask for less"):
        push_away(made, examples, 0.8, is_free=torch.zeros(10, 5, dtype=torch.float64))
