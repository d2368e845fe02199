"""The mathematics of distillation: gradients against autograd, and Theorem 2 of Loo et al. (2023)."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.core.errors import ExhumeError
from exhume.distillation.kernel import KIP, RKIP, InducingPoints, pushed_away
from exhume.distillation.losses import EmbeddingLoss, label_and_variance_terms
from exhume.kernels import InfiniteNTK, add_jitter, solve_duals

KERNEL = InfiniteNTK(depth=2, width=64)


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def twin(method, examples, answers, inputs, targets):
    """The loss as the papers write it, for autograd."""
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
    expected = twin(method, examples, answers, inputs, targets)
    expected.backward()
    problem = InducingPoints(
        kernel=KERNEL, loss=method.loss(examples, answers), examples=examples, targets=targets.detach()
    )
    value, (by_inputs, by_targets) = problem.objective((inputs.detach(), targets.detach()), torch.zeros(()))
    assert torch.allclose(value, expected.detach(), rtol=1e-9)
    assert torch.allclose(by_inputs, inputs.grad, rtol=1e-6, atol=1e-9)
    assert torch.allclose(by_targets, targets.grad, rtol=1e-6, atol=1e-9)


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000), many=st.integers(2, 12), few=st.integers(1, 6), outputs=st.integers(1, 3))
def test_reconstruction_loss_is_label_term_plus_variance_term(seed, many, few, outputs):
    examples, inputs = draw(many, 10, seed=seed), draw(few, 10, seed=seed + 1)
    answers, targets = draw(many, outputs, seed=seed + 2), draw(few, outputs, seed=seed + 3)
    train, across, within = KERNEL(examples), KERNEL(inputs, examples), KERNEL(inputs)
    duals = solve_duals(train, answers, 0.0)
    norm = float((duals * answers).sum())
    loss = EmbeddingLoss(duals=duals, squared_norm=norm, jitter=0.0)(within, across, targets)
    label, variance = label_and_variance_terms(train, across, within, answers, targets)
    assert abs(2 * float(loss.value) - float(label + variance)) < 1e-10 * max(1.0, norm)
    assert label > -1e-12
    assert variance > -1e-10


def test_the_training_set_itself_has_no_reconstruction_loss():
    examples, answers = draw(6, 10), draw(6, 1, seed=1)
    loss = RKIP(kernel=KERNEL, jitter=0.0).loss(examples, answers)
    kernel = KERNEL(examples)
    slopes = loss(kernel, kernel, answers)
    assert abs(slopes.value) < 1e-10 * loss.scale
    assert slopes.by_targets.abs().max() < 1e-10


def test_nothing_explains_nothing():
    examples, answers = draw(6, 10), draw(6, 2, seed=1)
    for method in (KIP(kernel=KERNEL), RKIP(kernel=KERNEL)):
        loss = method.loss(examples, answers)
        empty = torch.zeros(3, 2, dtype=torch.float64)
        inputs = draw(3, 10, seed=2)
        assert float(loss(KERNEL(inputs), KERNEL(inputs, examples), empty).value) == pytest.approx(loss.scale)


def test_pushed_away_keeps_the_distance_from_everybody():
    examples = draw(40, 5)
    made = examples[:10] + 0.01 * draw(10, 5, seed=1)
    far = pushed_away(made, examples, 0.8)
    assert torch.cdist(far, examples).min() >= 0.8
    assert torch.equal(pushed_away(far, examples, 0.5), far)
    with pytest.raises(ExhumeError, match="ask for less"):
        pushed_away(made, examples, 0.8, is_free=torch.zeros(10, 5, dtype=torch.float64))


def test_settings_that_make_no_sense_are_refused():
    for wrong in ({"size": 0}, {"noise": 1.0}, {"min_distance": -1.0}):
        with pytest.raises(ExhumeError):
            RKIP(**wrong)
