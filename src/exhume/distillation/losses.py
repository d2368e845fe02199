"""The losses of distillation, with their gradients in closed form.

``T`` is the training set, ``S`` the distilled one, ``a = K̃_SS⁻¹ y_S`` its duals (``K̃`` with jitter). A loss returns
its gradients with respect to ``K_SS``, ``K_ST`` and ``y_S``; the kernel turns these into gradients of the inputs.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.kernels.regression import cholesky

Within = Float[Tensor, "distilled distilled"]
Across = Float[Tensor, "distilled example"]
Targets = Float[Tensor, "distilled output"]


@dataclass(frozen=True)
class Slopes:
    """A loss and its gradients; the one by ``K_ST``, the large matrix, has the precision of that matrix."""

    value: Float[Tensor, ""]
    by_within: Within
    by_across: Across
    by_targets: Targets


@runtime_checkable
class DistillationLoss(Protocol):
    """A function of the kernel within the distilled set, of its kernel with the training set, and of its targets."""

    @property
    def scale(self) -> float:
        """The loss of a distilled set that predicts zero everywhere."""
        ...

    def __call__(self, within: Within, across: Across, targets: Targets) -> Slopes:
        """Return the loss and its gradients."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class PredictionLoss:
    """``½·mean (y_T − K_TS K̃_SS⁻¹ y_S)²``: kernel inducing points (Nguyen et al. 2021)."""

    answers: Float[Tensor, "example output"]
    """``y_T``."""
    jitter: float

    @cached_property
    def scale(self) -> float:
        """The loss of a distilled set that predicts zero everywhere; copied from the device once."""
        return 0.5 * float(self.answers.square().mean())

    def __call__(self, within: Within, across: Across, targets: Targets) -> Slopes:
        """Return the loss and its gradients."""
        factor = cholesky(within, self.jitter)
        duals = torch.cholesky_solve(targets, factor)
        errors = (across.T @ duals.to(across)).to(duals) - self.answers.to(duals)
        value = 0.5 * errors.square().mean()
        errors = (errors / errors.numel()).to(across)
        by_targets = torch.cholesky_solve((across @ errors).to(duals), factor)
        by_within = _gradient_through_duals(by_targets, duals, self.jitter)
        return Slopes(value, by_within, duals.to(across) @ errors.T, by_targets)


@dataclass(frozen=True, kw_only=True, eq=False)
class EmbeddingLoss:
    """``½·‖Σ_T α_i k(x_i, ·) − Σ_S a_j k(x_j, ·)‖²``: the reconstruction loss (Loo et al. 2023, section 5).

    By their Theorem 2 it is half the sum of a label term, ``‖y_T − K_TS a‖²`` in the norm of ``K_TT⁻¹``, and the
    variance of the distilled points given the training points; so its minima predict the labels *and* lie near the
    training data.
    """

    duals: Float[Tensor, "example output"]
    """``α_T = K_TT⁻¹ y_T``."""
    squared_norm: float
    """``α_Tᵀ K_TT α_T``."""
    jitter: float

    @property
    def scale(self) -> float:
        """The loss of a distilled set that predicts zero everywhere."""
        return 0.5 * self.squared_norm

    def __call__(self, within: Within, across: Across, targets: Targets) -> Slopes:
        """Return the loss and its gradients."""
        factor = cholesky(within, self.jitter)
        duals = torch.cholesky_solve(targets, factor)
        aims = self.duals.to(across)
        wanted = (across @ aims).to(duals)
        own = within @ duals
        value = 0.5 * (duals * own).sum() - (duals * wanted).sum() + 0.5 * self.squared_norm
        by_targets = torch.cholesky_solve(own - wanted, factor)
        by_within = _gradient_through_duals(by_targets, duals, self.jitter) + 0.5 * duals @ duals.T
        return Slopes(value, by_within, -duals.to(across) @ aims.T, by_targets)


def _gradient_through_duals(by_targets: Targets, duals: Targets, jitter: float) -> Within:
    """Return the gradient by ``K`` of a loss that depends on it through ``a = (K + jitter·tr(K)/n·I)⁻¹ y``."""
    outer = by_targets @ duals.T
    slope = -0.5 * (outer + outer.T)
    slope.diagonal().sub_(jitter / len(outer) * outer.trace())
    return slope
