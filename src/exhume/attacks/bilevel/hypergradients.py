"""Hypergradients: derivatives of trained weights by the training inputs, implicit and unrolled. Mathematics only.

A training with weight decay minimises ``E(x; θ) = mean ℓ(f(x_j; θ), y_j) + (w/2)‖θ‖²`` over the weights ``θ``. Each
lower level here returns the trained weights and their *pullback*, the map from a cotangent of these weights to the
gradient by inputs, so that no autograd graph spans the whole training.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume.clues.known_loss import UserLoss
from exhume.models.tangent import compute_outputs, split_weights
from exhume.records import AttackerView, Weights

Flat = Float[Tensor, " weight"]
"""All trained weights of a network in one vector."""
Inputs = Float[Tensor, "candidate value"]
Pullback = Callable[[Tensor], Tensor]
"""Map a cotangent of trained weights to the gradient by inputs."""

STEP_LENGTHS = (1.0, 0.5, 0.25, 0.1, 0.02, 0.0)
"""Fractions of a Newton step to try; the best is taken. Zero is for weights that only rounding could improve."""


@dataclass(frozen=True, kw_only=True)
class TrainingProblem:
    """``E(x; θ) = mean ℓ(f(x_j; θ), y_j) + (w/2)‖θ‖²`` for fixed targets, with the derivatives an attack needs."""

    model: nn.Module
    shapes: Mapping[str, torch.Size]
    """Shapes of the trained weights, in the order of a flat vector."""
    fixed: Weights
    """Buffers, which training does not change."""
    input_shape: tuple[int, ...]
    loss: UserLoss
    targets: Tensor
    weight_decay: float

    @classmethod
    def of(
        cls, view: AttackerView, loss: UserLoss, targets: Tensor, weight_decay: float, dtype: torch.dtype
    ) -> "TrainingProblem":
        """Return the problem that the training of a view's network solved, as the attacker guesses it."""
        model = view.module(view.final).to(dtype)
        trained, fixed = split_weights(model, model.state_dict())
        return cls(
            model=model,
            shapes={name: weight.shape for name, weight in trained.items()},
            fixed=fixed,
            input_shape=view.input_shape,
            loss=loss,
            targets=targets.to(view.device, dtype) if targets.is_floating_point() else targets.to(view.device),
            weight_decay=weight_decay,
        )

    def flat(self, weights: Weights) -> Flat:
        """Return trained weights as one vector, in the precision of the problem."""
        like = next(self.model.parameters())
        return torch.cat([weights[name].to(like).flatten() for name in self.shapes])

    def named(self, weights: Flat) -> dict[str, Tensor]:
        """Return a vector of weights by name; the inverse of :meth:`flat`."""
        parts = torch.split(weights, [shape.numel() for shape in self.shapes.values()])
        return {name: part.reshape(shape) for part, (name, shape) in zip(parts, self.shapes.items(), strict=True)}

    def energy(self, weights: Flat, inputs: Inputs) -> Float[Tensor, ""]:
        """Return the objective of the training."""
        shaped = inputs.reshape(len(inputs), *self.input_shape)
        outputs = compute_outputs(self.model, {**self.named(weights), **self.fixed}, shaped)
        return self.loss(outputs, self.targets) + 0.5 * self.weight_decay * weights.dot(weights)

    def gradient(self, weights: Flat, inputs: Inputs) -> Flat:
        """Return the gradient by weights, which vanishes where the training comes to rest."""
        gradient: Tensor = torch.func.grad(self.energy)(weights, inputs)
        return gradient

    def curvature(self, weights: Flat, inputs: Inputs) -> tuple[Flat, Callable[[Flat], Flat]]:
        """Return the gradient by weights, and the function that multiplies a direction by the Hessian."""
        gradient, pull = torch.func.vjp(lambda at: self.gradient(at, inputs), weights)[:2]
        return gradient, lambda direction: pull(direction)[0]  # the Hessian is symmetric

    def second_derivatives(self, weights: Flat, inputs: Inputs, along: Flat) -> tuple[Flat, Inputs]:
        """Return the derivatives of ``⟨∇θE, along⟩`` by weights (a product with the Hessian) and by inputs."""

        def slope_along(at: Tensor, given: Tensor) -> Tensor:
            return self.gradient(at, given).dot(along)

        by_weights, by_inputs = torch.func.grad(slope_along, argnums=(0, 1))(weights, inputs)
        return by_weights, by_inputs


@runtime_checkable
class LowerLevel(Protocol):
    """A way of training, differentiable by its training inputs."""

    def __call__(self, problem: TrainingProblem, start: Flat, inputs: Inputs) -> tuple[Flat, Pullback]:
        """Train on ``inputs`` from the weights ``start``; return the trained weights and their pullback."""
        ...


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


@dataclass(frozen=True, kw_only=True)
class Unrolled:
    """Train for a number of steps of gradient descent with momentum, and differentiate through each step.

    Needs neither convexity nor a stationary point. Only every ``√steps``-th state is kept; the pullback recomputes the
    states between, so that memory grows with the square root of the steps and each autograd graph spans one step.
    """

    steps: int
    rate: float
    momentum: float = 0.0

    def __call__(self, problem: TrainingProblem, start: Flat, inputs: Inputs) -> tuple[Flat, Pullback]:
        """Return the weights after the last step, and their pullback."""
        stride = max(1, math.isqrt(self.steps))
        state = start, torch.zeros_like(start)
        kept = []
        for step in range(self.steps):
            if step % stride == 0:
                kept.append(state)
            state = self.advance(problem, inputs, *state)

        def pullback(cotangent: Tensor) -> Tensor:
            to_weights, to_velocity = cotangent, torch.zeros_like(cotangent)
            to_inputs = torch.zeros_like(inputs)
            for segment in reversed(range(len(kept))):
                length = min(stride, self.steps - segment * stride)
                states = [kept[segment]]
                for _ in range(length - 1):
                    states.append(self.advance(problem, inputs, *states[-1]))
                for weights, _ in reversed(states):
                    # The velocity after a step moves the weights and enters the next step.
                    arriving = to_weights + to_velocity
                    by_weights, by_inputs = problem.second_derivatives(weights, inputs, arriving)
                    to_weights = to_weights - self.rate * by_weights
                    to_velocity = self.momentum * arriving
                    to_inputs = to_inputs - self.rate * by_inputs
            return to_inputs

        return state[0], pullback

    def advance(self, problem: TrainingProblem, inputs: Inputs, weights: Flat, velocity: Flat) -> tuple[Flat, Flat]:
        """Take one step of gradient descent with momentum; return weights and velocity."""
        velocity = self.momentum * velocity - self.rate * problem.gradient(weights, inputs)
        return weights + velocity, velocity


def one_step(weight_decay: float) -> Unrolled:
    """Return a lower level of a single step of length ``1/w``, which tests whether the weights are stationary.

    From the target weights it moves by ``−∇θE/w = Σ_j l_j ∇f(x_j) − θ`` with multipliers tied to the loss and the
    labels: the move is the residual of the tied stationarity attack.
    """
    return Unrolled(steps=1, rate=1.0 / weight_decay)


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
