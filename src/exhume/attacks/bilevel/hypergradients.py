"""How the end of a training answers to its inputs: hyper-gradients, implicit and unrolled. Mathematics only.

A training with weight decay minimises ``E(x; θ) = mean ℓ(f(x_j; θ), y_j) + (w/2)‖θ‖²`` by its weights ``θ``. Each way
of training here returns the weights it ends with and their *pullback*, the map from a cotangent of these weights to the
gradient by inputs, so that a step of an optimiser keeps no graph of the whole training.
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
"""Every trained weight of a network in one row."""
Inputs = Float[Tensor, "candidate value"]
Pullback = Callable[[Tensor], Tensor]
"""From a cotangent of trained weights to the gradient by inputs."""

STEP_LENGTHS = (1.0, 0.5, 0.25, 0.1, 0.02, 0.0)
"""Of a Newton step, the best of which is taken; the last stays, for where rounding is all there is to gain."""


@dataclass(frozen=True, kw_only=True)
class TrainingProblem:
    """``E(x; θ) = mean ℓ(f(x_j; θ), y_j) + (w/2)‖θ‖²`` under fixed targets, with the derivatives an attack needs."""

    model: nn.Module
    shapes: Mapping[str, torch.Size]
    """Of the trained weights, in the order of a flat row."""
    fixed: Weights
    """Buffers, which training does not move."""
    input_shape: tuple[int, ...]
    loss: UserLoss
    targets: Tensor
    weight_decay: float

    @classmethod
    def of(
        cls, view: AttackerView, loss: UserLoss, targets: Tensor, weight_decay: float, dtype: torch.dtype
    ) -> "TrainingProblem":
        """Pose the problem that the training of a view's network solved, as far as the attacker guesses it."""
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
        """Return trained weights in one row, in the precision of the problem."""
        like = next(self.model.parameters())
        return torch.cat([weights[name].to(like).flatten() for name in self.shapes])

    def named(self, weights: Flat) -> dict[str, Tensor]:
        """Return a row of weights by name; the inverse of :meth:`flat`."""
        parts = torch.split(weights, [shape.numel() for shape in self.shapes.values()])
        return {name: part.reshape(shape) for part, (name, shape) in zip(parts, self.shapes.items(), strict=True)}

    def energy(self, weights: Flat, inputs: Inputs) -> Float[Tensor, ""]:
        """Return what the training minimises."""
        shaped = inputs.reshape(len(inputs), *self.input_shape)
        outputs = compute_outputs(self.model, {**self.named(weights), **self.fixed}, shaped)
        return self.loss(outputs, self.targets) + 0.5 * self.weight_decay * weights.dot(weights)

    def gradient(self, weights: Flat, inputs: Inputs) -> Flat:
        """Return the slope by weights, which vanishes where the training comes to rest."""
        slope: Tensor = torch.func.grad(self.energy)(weights, inputs)
        return slope

    def curvature(self, weights: Flat, inputs: Inputs) -> tuple[Flat, Callable[[Flat], Flat]]:
        """Return the slope by weights, and the map from a direction to the Hessian's product with it."""
        slope, pull = torch.func.vjp(lambda at: self.gradient(at, inputs), weights)[:2]
        return slope, lambda direction: pull(direction)[0]  # the Hessian is its own transpose

    def crossed(self, weights: Flat, inputs: Inputs, along: Flat) -> tuple[Flat, Inputs]:
        """Return how ``⟨∇θE, along⟩`` answers to weights (a product with the Hessian) and to inputs."""

        def slope_along(at: Tensor, given: Tensor) -> Tensor:
            return self.gradient(at, given).dot(along)

        by_weights, by_inputs = torch.func.grad(slope_along, argnums=(0, 1))(weights, inputs)
        return by_weights, by_inputs


@runtime_checkable
class LowerLevel(Protocol):
    """A way of training, differentiable by what it trains on."""

    def __call__(self, problem: TrainingProblem, start: Flat, inputs: Inputs) -> tuple[Flat, Pullback]:
        """Train from ``start`` on ``inputs``; return the weights at the end and their pullback."""
        ...


@dataclass(frozen=True, kw_only=True)
class Implicit:
    """Train to rest, and differentiate by the implicit function theorem.

    Where ``∇θE(x; θ*) = 0``, moving an input moves the weights by ``−H⁻¹ ∂x∇θE``. Nothing of the way there is kept, but
    the Hessian ``H`` must be positive definite at the end: certain for a strongly convex problem (an affine classifier
    with weight decay), and a matter of luck for others. Newton's method with conjugate gradients brings the weights to
    rest in a few steps from wherever they are.
    """

    newton_steps: int = 12
    iterations: int = 250
    """Of conjugate gradients, at most."""
    tolerance: float = 1e-8
    """The slope that counts as rest, relative to that of the weight decay alone."""

    def __call__(self, problem: TrainingProblem, start: Flat, inputs: Inputs) -> tuple[Flat, Pullback]:
        """Return where the training comes to rest, and the pullback of that point."""
        weights = self.rest(problem, start, inputs)
        _, product = problem.curvature(weights, inputs)

        def pullback(cotangent: Tensor) -> Tensor:
            solved = conjugate_gradients(product, cotangent, iterations=self.iterations, tolerance=self.tolerance)
            return -problem.crossed(weights, inputs, solved)[1]

        return weights, pullback

    def rest(self, problem: TrainingProblem, start: Flat, inputs: Inputs) -> Flat:
        """Return where the slope vanishes, by Newton's method from ``start``."""
        weights = start
        least = max(self.tolerance, 100 * torch.finfo(start.dtype).eps)
        calm = least * problem.weight_decay * float(start.norm().clamp(min=1.0)) if can_look(start) else 0.0
        for _ in range(self.newton_steps):
            slope, product = problem.curvature(weights, inputs)
            if can_look(slope) and float(slope.norm()) <= calm:
                break
            step = conjugate_gradients(product, -slope, iterations=self.iterations, tolerance=1e-4)
            weights = weights + longest_gain(problem, weights, step, inputs) * step
        return weights


@dataclass(frozen=True, kw_only=True)
class Unrolled:
    """Train for a number of steps of gradient descent with momentum, and differentiate through each of them.

    Needs no convexity and no rest. Only every ``√steps``-th state is kept on the way; the states between are walked
    again when the pullback comes by, so that memory grows with the square root of the steps and no autograd graph is
    longer than one of them.
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
            to_weights, to_motion = cotangent, torch.zeros_like(cotangent)
            to_inputs = torch.zeros_like(inputs)
            for segment in reversed(range(len(kept))):
                length = min(stride, self.steps - segment * stride)
                walked = [kept[segment]]
                for _ in range(length - 1):
                    walked.append(self.advance(problem, inputs, *walked[-1]))
                for weights, _ in reversed(walked):
                    # The motion after the step moves the weights, and is remembered by the next step.
                    arriving = to_weights + to_motion
                    by_weights, by_inputs = problem.crossed(weights, inputs, arriving)
                    to_weights = to_weights - self.rate * by_weights
                    to_motion = self.momentum * arriving
                    to_inputs = to_inputs - self.rate * by_inputs
            return to_inputs

        return state[0], pullback

    def advance(self, problem: TrainingProblem, inputs: Inputs, weights: Flat, motion: Flat) -> tuple[Flat, Flat]:
        """Take one step of heavy-ball descent."""
        moved = self.momentum * motion - self.rate * problem.gradient(weights, inputs)
        return weights + moved, moved


def one_step(weight_decay: float) -> Unrolled:
    """Return a single step of length ``1/w``, which asks of a training only that it rest where it is.

    From the target weights it moves by ``−∇θE/w = Σ_j l_j ∇f(x_j) − θ`` with multipliers tied to the loss and the
    labels: what is left of the weights is the residual of the tied stationarity attack.
    """
    return Unrolled(steps=1, rate=1.0 / weight_decay)


def conjugate_gradients(
    product: Callable[[Flat], Flat], right: Flat, *, iterations: int, tolerance: float = 1e-10
) -> Flat:
    """Solve ``A·x = right`` for a symmetric positive definite ``A`` that is known by its products.

    Stops where the residual is small, and where a direction of no or negative curvature shows that ``A`` was not
    positive definite after all; what was solved until then is a direction of descent.
    """
    solution = torch.zeros_like(right)
    residual, direction = right, right
    square = right.dot(right)
    enough = square * max(tolerance, 10 * torch.finfo(right.dtype).eps) ** 2
    for _ in range(iterations):
        if can_look(square) and bool(square <= enough):
            break
        image = product(direction)
        bend = direction.dot(image)
        # By choice of values instead of branches, for recorded work cannot stop early: what is solved stays solved.
        is_open = (bend > 0) & (square > enough)
        length = torch.where(is_open, square / torch.where(is_open, bend, 1.0), 0.0)
        solution = solution + length * direction
        residual = residual - length * image
        following = residual.dot(residual)
        ratio = torch.where(is_open, following / torch.where(is_open, square, 1.0), 0.0)
        direction = residual + ratio * direction
        if can_look(square) and not bool(is_open):
            break
        square = torch.where(is_open, following, torch.zeros_like(square))
    return solution


def longest_gain(problem: TrainingProblem, weights: Flat, step: Flat, inputs: Inputs) -> Float[Tensor, ""]:
    """Return the length of a step, out of a few, that lowers the energy most."""
    energies = torch.stack([problem.energy(weights + length * step, inputs) for length in STEP_LENGTHS])
    energies = energies.nan_to_num(torch.inf)
    least = energies.min()
    # Near rest the whole step is right, and rounding hides what it gains: of equals the longest is taken.
    is_least = energies <= least + 10 * torch.finfo(least.dtype).eps * least.abs()
    lengths = torch.stack([weights.new_full((), length) for length in STEP_LENGTHS])
    return lengths.gather(0, is_least.int().argmax(0, keepdim=True))[0]


def can_look(tensor: Tensor) -> bool:
    """Tell whether a value may be read back: always, but while a GPU records work that it is to repeat by itself."""
    return not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())
