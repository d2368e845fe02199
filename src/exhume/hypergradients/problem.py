"""The problem that a training solves, as a function of its weights, inputs and targets. Mathematics only.

A training with weight decay minimises ``E(x; θ) = mean ℓ(f(x_j; θ), y_j) + (w/2)‖θ‖²`` over the weights ``θ``. A lower
level returns the trained weights and their *pullback*, the map from a cotangent of these weights to the gradient by
inputs, so that no autograd graph spans the whole training.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume.clues.known_loss import UserLoss
from exhume.models.batch_norm import (
    STATISTICS,
    batch_norms,
    record_statistics,
    statistics_changed,
    with_batch_statistics,
)
from exhume.models.tangent import compute_outputs, split_weights
from exhume.records import AttackerView, Weights

Flat = Float[Tensor, " weight"]
"""All trained weights of a network in one vector."""
Inputs = Float[Tensor, "candidate value"]
Statistics = Float[Tensor, " statistic"]
"""Means and variances of all batch normalisations in one vector."""
Pullback = Callable[[Tensor], Tensor]
"""Map a cotangent of trained weights to the gradient by inputs."""


@dataclass(frozen=True, kw_only=True)
class TrainingProblem:
    """``E(x; θ) = mean ℓ(f(x_j; θ), y_j) + (w/2)‖θ‖²``, with the derivatives an attack needs."""

    model: nn.Module
    shapes: Mapping[str, torch.Size]
    """Shapes of the trained weights, in the order of a flat vector."""
    fixed: Weights
    """Buffers, which training does not change."""
    input_shape: tuple[int, ...]
    loss: UserLoss
    targets: Tensor
    weight_decay: float
    normalised: tuple[str, ...] = ()
    """Names of the layers that normalise by the batch."""

    @classmethod
    def of(
        cls, view: AttackerView, loss: UserLoss, targets: Tensor, weight_decay: float, dtype: torch.dtype
    ) -> "TrainingProblem":
        """Return the problem that the training of a view's network solved, as the attacker guesses it.

        Batch normalisation is by the batch where the view shows that running statistics changed, and by the released
        statistics elsewhere.
        """
        model = view.module(view.final).to(dtype)
        normalised: tuple[str, ...] = ()
        if view.initial is not None and statistics_changed(model, view.initial, view.final):
            normalised = tuple(batch_norms(model))
            model = with_batch_statistics(model)
        trained, fixed = split_weights(model, model.state_dict())
        return cls(
            model=model,
            shapes={name: weight.shape for name, weight in trained.items()},
            fixed=fixed,
            input_shape=view.input_shape,
            loss=loss,
            targets=targets.to(view.device, dtype) if targets.is_floating_point() else targets.to(view.device),
            weight_decay=weight_decay,
            normalised=normalised,
        )

    def with_model(self, model: nn.Module) -> "TrainingProblem":
        """Return the same problem for a module with the same weights, and buffers of its own."""
        return replace(self, model=model, fixed=split_weights(model, model.state_dict())[1])

    def flat(self, weights: Weights) -> Flat:
        """Return trained weights as one vector, in the precision of the problem."""
        like = next(self.model.parameters())
        return torch.cat([weights[name].to(like).flatten() for name in self.shapes])

    def named(self, weights: Flat) -> dict[str, Tensor]:
        """Return a vector of weights by name; the inverse of :meth:`flat`."""
        parts = torch.split(weights, [shape.numel() for shape in self.shapes.values()])
        return {name: part.reshape(shape) for part, (name, shape) in zip(parts, self.shapes.items(), strict=True)}

    def running_statistics(self, weights: Weights) -> Statistics:
        """Return the running statistics of the layers that normalise by the batch."""
        like = next(self.model.parameters())
        parts = [weights[f"{name}.{kind}"].to(like) for name in self.normalised for kind in STATISTICS]
        return torch.cat([like.new_zeros(0), *parts])

    def energy(self, weights: Flat, inputs: Inputs, targets: Tensor | None = None) -> Float[Tensor, ""]:
        """Return the objective of the training; by default with the targets of the problem."""
        shaped = inputs.reshape(len(inputs), *self.input_shape)
        outputs = compute_outputs(self.model, {**self.named(weights), **self.fixed}, shaped)
        value = self.loss(outputs, self.targets if targets is None else targets)
        return value + 0.5 * self.weight_decay * weights.dot(weights)

    def gradient(self, weights: Flat, inputs: Inputs, targets: Tensor | None = None) -> Flat:
        """Return the gradient by weights, which vanishes where the training comes to rest."""
        gradient: Tensor = torch.func.grad(self.energy)(weights, inputs, targets)
        return gradient

    def gradient_and_statistics(
        self, weights: Flat, inputs: Inputs, targets: Tensor | None = None
    ) -> tuple[Flat, Statistics]:
        """Return the gradient by weights, and the batch statistics that a step adds to the running ones."""

        def energy(at: Tensor) -> tuple[Tensor, Tensor]:
            with record_statistics(self.model, self.normalised) as recorded:
                value = self.energy(at, inputs, targets)
            return value, torch.cat([recorded[name] for name in self.normalised])

        gradient, statistics = torch.func.grad(energy, has_aux=True)(weights)
        return gradient, statistics

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
