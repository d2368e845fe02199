"""The losses of distillation: Theorem 2 of Loo et al. (2023), and their values in limits."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.distillation.kip import KIP, RKIP
from exhume.distillation.losses import EmbeddingLoss
from exhume.kernels import InfiniteNTK, solve_duals

KERNEL = InfiniteNTK(depth=2, width=64)


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def label_and_variance_terms(train_kernel, across, within, answers, targets):
    """Return the two terms of Theorem 2 of Loo et al. (2023), whose sum is the squared distance of embeddings.

    The label term ``‖y_T − K_TS K_SS⁻¹ y_S‖²`` in the norm of ``K_TT⁻¹``, and ``y_Sᵀ K_SS⁻¹ (K_SS − K_ST K_TT⁻¹ K_TS)
    K_SS⁻¹ y_S``, the conditional variance of the distilled points given the training points.
    """
    duals = torch.linalg.solve(within, targets)
    errors = answers - across.T @ duals
    label = (errors * torch.linalg.solve(train_kernel, errors)).sum()
    variance = (duals * ((within - across @ torch.linalg.solve(train_kernel, across.T)) @ duals)).sum()
    return label, variance


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


def test_the_scale_is_the_loss_of_zero_predictions():
    examples, answers = draw(6, 10), draw(6, 2, seed=1)
    for method in (KIP(kernel=KERNEL), RKIP(kernel=KERNEL)):
        loss = method.loss(examples, answers)
        empty = torch.zeros(3, 2, dtype=torch.float64)
        inputs = draw(3, 10, seed=2)
        assert float(loss(KERNEL(inputs), KERNEL(inputs, examples), empty).value) == pytest.approx(loss.scale)
