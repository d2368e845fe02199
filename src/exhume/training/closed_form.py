"""Linearised training in closed form.

A network that is linear in its weights, trained on ``½·mean((f − y)²)`` by gradient flow, has the residual
``exp(−K t/n)(y − f0)`` at time ``t``, with ``K`` the tangent kernel between all outputs at all examples and ``n`` the
number of targets (Lee et al. 2019). So its weights have moved by ``J(X)ᵀ·duals`` with
``duals = K⁻¹(I − exp(−K t/n))(y − f0)`` (Loo et al. 2023, section 4.1): one eigendecomposition, no steps.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from scipy.optimize import brentq
from torch import Tensor, nn

from exhume.models.tangent import Weights, compute_outputs, kernel_blocks, vector_jacobian_product


@dataclass(frozen=True)
class Flow:
    """The gradient flow of half mean squares in the eigenbasis of the kernel."""

    rates: Float[Tensor, " target"]
    """Eigenvalues of ``K``, divided by the number of targets."""
    basis: Float[Tensor, "target target"]
    residual: Float[Tensor, " target"]
    """``y − f0`` in the basis."""

    @classmethod
    def diagonalise(cls, kernel: Float[Tensor, "target target"], residual: Float[Tensor, " target"]) -> "Flow":
        """Return the flow of a kernel from an initial residual, in the eigenbasis of the kernel."""
        values, vectors = torch.linalg.eigh(kernel)
        return cls(values.clamp_min(0.0) / len(values), vectors, vectors.T @ residual)

    def loss(self, time: float) -> float:
        """Return the loss at a time, which may be infinite."""
        return 0.5 * (self.residual * self._decay(time)).square().mean().item()

    def duals(self, time: float) -> Float[Tensor, " target"]:
        """Return ``K⁻¹(I − exp(−K t/n))(y − f0)``; zero along directions in which the kernel vanishes."""
        count = len(self.rates)
        seen = self.rates > self.rates[-1] * count * torch.finfo(self.rates.dtype).eps
        grown = torch.where(seen, (1.0 - self._decay(time)) / torch.where(seen, self.rates, 1.0), 0.0)
        return self.basis @ (grown * self.residual) / count

    def time_to(self, loss: float, limit: float) -> float:
        """Return the time at which the loss has fallen to ``loss``, or ``limit`` when that comes first."""
        if loss <= 0.0 or self.loss(limit) > loss:
            return limit
        if self.loss(0.0) <= loss:
            return 0.0
        late = 1.0 / self.rates[-1].item()
        while self.loss(late) > loss:
            late *= 2.0
        found: float = brentq(lambda time: math.log(self.loss(time) / loss), 0.0, late, xtol=1e-14 * late, rtol=1e-12)
        return min(found, limit)

    def _decay(self, time: float) -> Tensor:
        if math.isinf(time):
            return (self.rates <= self.rates[-1] * len(self.rates) * torch.finfo(self.rates.dtype).eps).to(self.rates)
        return torch.exp(-self.rates * time)


def solve_flow(
    model: nn.Module, weights: Weights, inputs: Float[Tensor, "example ..."], targets: Float[Tensor, "example output"]
) -> Flow:
    """Return the flow of ``model`` linearised at ``weights``; weights and inputs should be float64."""
    kernel = kernel_blocks(model, weights, inputs).reshape(targets.numel(), targets.numel())
    with torch.no_grad():
        residual = targets - compute_outputs(model, weights, inputs)
    return Flow.diagonalise(kernel, residual.reshape(-1))


def weights_at(
    model: nn.Module, weights: Weights, inputs: Float[Tensor, "example ..."], flow: Flow, time: float
) -> dict[str, Tensor]:
    """Return the weights of a linearised network at a time of its flow."""
    outputs = len(flow.rates) // len(inputs)
    change = vector_jacobian_product(model, weights, inputs, flow.duals(time).reshape(len(inputs), outputs))
    return {name: weight + change[name] if name in change else weight for name, weight in weights.items()}
