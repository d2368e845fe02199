"""Derivatives of trained weights by the implicit function theorem, where training came to rest. Mathematics only."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.hypergradients.problem import Flat, Inputs, Pullback, TrainingProblem

STEP_LENGTHS = (1.0, 0.5, 0.25, 0.1, 0.02, 0.0)
"""Fractions of a Newton step to try; the best is taken. Zero is for weights that only rounding could improve."""


@dataclass(frozen=True, kw_only=True)
class Implicit:
    """Train until the gradient vanishes, and differentiate by the implicit function theorem.

    Where ``∇θE(x; θ*) = 0``, moving an input moves the weights by ``−H⁻¹ ∂x∇θE``. No intermediate state is kept, but
    the Hessian ``H`` must be positive definite at the end. It is for a strongly convex problem (an affine classifier
    with weight decay); for other problems it may not be. The training is Newton's method with conjugate gradients.
    """

    newton_steps: int = 12
    """Largest number of Newton steps."""
    iterations: int = 250
    """Largest number of iterations of conjugate gradients per solve."""
    tolerance: float = 1e-8
    """Norm of the gradient at which training stops, relative to the gradient of the weight decay alone."""

    def __call__(self, problem: TrainingProblem, start: Flat, inputs: Inputs) -> tuple[Flat, Pullback]:
        """Return the weights where the gradient vanishes, and their pullback."""
        weights = self.rest(problem, start, inputs)
        _, product = problem.curvature(weights, inputs)

        def pullback(cotangent: Tensor) -> Tensor:
            solved = conjugate_gradients(product, cotangent, iterations=self.iterations, tolerance=self.tolerance)
            return -problem.second_derivatives(weights, inputs, solved)[1]

        return weights, pullback

    def rest(self, problem: TrainingProblem, start: Flat, inputs: Inputs) -> Flat:
        """Return the weights where the gradient vanishes, by Newton's method from ``start``."""
        weights = start
        relative = max(self.tolerance, 100 * torch.finfo(start.dtype).eps)
        small = relative * problem.weight_decay * float(start.norm().clamp(min=1.0)) if can_read(start) else 0.0
        for _ in range(self.newton_steps):
            gradient, product = problem.curvature(weights, inputs)
            if can_read(gradient) and float(gradient.norm()) <= small:
                break
            step = conjugate_gradients(product, -gradient, iterations=self.iterations, tolerance=1e-4)
            weights = weights + best_step_length(problem, weights, step, inputs) * step
        return weights


def conjugate_gradients(
    product: Callable[[Flat], Flat], right: Flat, *, iterations: int, tolerance: float = 1e-10
) -> Flat:
    """Solve ``A·x = right`` for a symmetric positive definite ``A`` given by its products.

    Stops when the residual is small, or when a direction of zero or negative curvature shows that ``A`` is not positive
    definite; the partial solution is a descent direction.
    """
    solution = torch.zeros_like(right)
    residual, direction = right, right
    square = right.dot(right)
    enough = square * max(tolerance, 10 * torch.finfo(right.dtype).eps) ** 2
    for _ in range(iterations):
        if can_read(square) and bool(square <= enough):
            break
        image = product(direction)
        curvature = direction.dot(image)
        # torch.where instead of branches: a recorded CUDA graph cannot stop early, so a finished solution must stay.
        is_open = (curvature > 0) & (square > enough)
        length = torch.where(is_open, square / torch.where(is_open, curvature, 1.0), 0.0)
        solution = solution + length * direction
        residual = residual - length * image
        following = residual.dot(residual)
        ratio = torch.where(is_open, following / torch.where(is_open, square, 1.0), 0.0)
        direction = residual + ratio * direction
        if can_read(square) and not bool(is_open):
            break
        square = torch.where(is_open, following, torch.zeros_like(square))
    return solution


def best_step_length(problem: TrainingProblem, weights: Flat, step: Flat, inputs: Inputs) -> Float[Tensor, ""]:
    """Return the fraction of a step, out of ``STEP_LENGTHS``, that lowers the energy most."""
    energies = torch.stack([problem.energy(weights + length * step, inputs) for length in STEP_LENGTHS])
    energies = energies.nan_to_num(torch.inf)
    least = energies.min()
    # Near the minimum the full step is right but rounding hides its gain: among equals take the longest.
    is_least = energies <= least + 10 * torch.finfo(least.dtype).eps * least.abs()
    lengths = torch.stack([weights.new_full((), length) for length in STEP_LENGTHS])
    return lengths.gather(0, is_least.int().argmax(0, keepdim=True))[0]


def can_read(tensor: Tensor) -> bool:
    """Return whether a value may be read back: always, except while a CUDA graph is recorded."""
    return not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())
