"""The function that an infinitely wide network learned, approximated by a sum of kernels at candidates.

In the kernel's own norm ``⟨f, k(x, ·)⟩ = f(x)``, so everything here needs a network's outputs and none of its weights.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.infinite_width.answers import Answers
from exhume.kernels import InfiniteNTK, solve_duals
from exhume.optimise import Variables

JITTER = 1e-12
"""Relative jitter of kernel matrices: allows candidates that coincide, and is below the rounding of other solutions."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Embedding:
    """``‖f − Σ_j α_j k(x_j, ·)‖² − ‖f‖²`` for a network ``f = Σ_i α_i k(x_i, ·)`` that can only be evaluated.

    Up to a constant the squared distance of two embeddings is ``Σ α_j α_l k(x_j, x_l) − 2 Σ α_j f(x_j)``. On a sphere
    the kernel embeds measures injectively, so that with as many candidates as training inputs only the training set
    itself has distance zero (Loo et al. 2023, Theorem 1).
    """

    kernel: InfiniteNTK
    answers: Answers
    radius: float | None = None
    """Norm of every input, where inputs are known to lie on a sphere."""
    dual_unit: float = 1.0
    """Unit of the dual variables, so that these are of order one."""

    @classmethod
    def of(
        cls,
        kernel: InfiniteNTK,
        answers: Answers,
        candidates: Float[Tensor, "candidate value"],
        radius: float | None = None,
    ) -> "Embedding":
        """Return the problem with a unit of duals that suits initial candidates: outputs over the kernel's diagonal."""
        problem = cls(kernel=kernel, answers=answers, radius=radius)
        inputs = problem.inputs(candidates)
        with torch.no_grad():
            outputs = answers(inputs)[0].square().mean().sqrt()
            unit = float(outputs / kernel.diagonal(inputs).mean())
        return replace(problem, dual_unit=unit or 1.0)

    def inputs(self, free: Float[Tensor, "candidate value"]) -> Float[Tensor, "candidate value"]:
        """Return the inputs of free variables, on the sphere where there is one."""
        return free if self.radius is None else project_to_sphere(free, self.radius)

    def objective(self, variables: Variables, elapsed: Float[Tensor, ""]) -> tuple[Float[Tensor, ""], Variables]:
        """Return the value at free inputs and duals in their unit, and its gradients."""
        free, raw = variables
        inputs, duals = self.inputs(free), self.dual_unit * raw
        gram, pull = self.kernel.with_vjp(inputs)
        outputs, pull_outputs = self.answers(inputs)
        fitted = gram @ duals
        value = (duals * fitted).sum() - 2.0 * (duals * outputs).sum()
        by_inputs = pull(duals @ duals.T) - 2.0 * pull_outputs(duals)
        if self.radius is not None:
            by_inputs = pull_from_sphere(by_inputs, free, self.radius)
        return value, (by_inputs, 2.0 * self.dual_unit * (fitted - outputs))

    def best_duals(self, free: Float[Tensor, "candidate value"]) -> Float[Tensor, "candidate output"]:
        """Return the duals, in their unit, that fit best at free inputs, in closed form."""
        inputs = self.inputs(free)
        outputs = self.answers(inputs)[0].double()
        return (solve_duals(self.kernel(inputs.double()), outputs, JITTER) / self.dual_unit).to(free)


def project_to_sphere(free: Float[Tensor, "candidate value"], radius: float) -> Float[Tensor, "candidate value"]:
    """Return inputs of norm ``radius`` in the directions of free inputs."""
    return radius * free / norms(free)


def pull_from_sphere(
    gradient: Float[Tensor, "candidate value"], free: Float[Tensor, "candidate value"], radius: float
) -> Float[Tensor, "candidate value"]:
    """Return the gradient by free inputs, given that by their projections to the sphere."""
    length = norms(free)
    direction = free / length
    return radius / length * (gradient - direction * (direction * gradient).sum(1, keepdim=True))


def norms(inputs: Float[Tensor, "candidate value"]) -> Float[Tensor, "candidate 1"]:
    """Return the norm of every input, at least a tiny positive number."""
    length: Tensor = torch.linalg.vector_norm(inputs, dim=1, keepdim=True)
    return length.clamp(min=1e-12)
