"""The rules by which optimisers change weights, as differentiable functions of the gradient. Mathematics only."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

State = tuple[Tensor, ...]
"""Weights, then whatever an optimiser remembers of the steps before."""

EPSILON = 1e-8
"""Smallest root of Adam's mean square, as in PyTorch."""


@runtime_checkable
class Rule(Protocol):
    """One step of an optimiser."""

    def begin(self, weights: Tensor) -> State:
        """Return the state before the first step."""
        ...

    def advance(self, state: State, gradient: Tensor, rate: Tensor | float, step: int) -> State:
        """Return the state after a step of length ``rate``; steps count from 0."""
        ...


@dataclass(frozen=True, kw_only=True)
class MomentumRule:
    """Gradient descent with momentum, as ``torch.optim.SGD`` takes it."""

    momentum: float = 0.0

    def begin(self, weights: Tensor) -> State:
        """Return weights at rest."""
        return (weights, torch.zeros_like(weights)) if self.momentum else (weights,)

    def advance(self, state: State, gradient: Tensor, rate: Tensor | float, step: int) -> State:
        """Return weights and velocity after a step."""
        if not self.momentum:
            return (state[0] - rate * gradient,)
        velocity = self.momentum * state[1] + gradient
        return state[0] - rate * velocity, velocity


@dataclass(frozen=True, kw_only=True)
class AdamRule:
    """Adam (Kingma and Ba 2015), and AdamW with its decoupled weight decay.

    ``√(v + ε²)`` stands for ``√v + ε``: equal for any gradient that counts, and differentiable where ``v`` is zero.
    """

    mean_decay: float = 0.9
    square_decay: float = 0.999
    decoupled_decay: float = 0.0

    def begin(self, weights: Tensor) -> State:
        """Return weights without any gradient seen."""
        return weights, torch.zeros_like(weights), torch.zeros_like(weights)

    def advance(self, state: State, gradient: Tensor, rate: Tensor | float, step: int) -> State:
        """Return weights, mean gradient and mean square after a step."""
        weights, mean, square = state
        mean = self.mean_decay * mean + (1 - self.mean_decay) * gradient
        square = self.square_decay * square + (1 - self.square_decay) * gradient.square()
        mean_bias, square_bias = 1 - self.mean_decay ** (step + 1), 1 - self.square_decay ** (step + 1)
        change = mean / mean_bias / (square / square_bias + EPSILON**2).sqrt()
        return weights - rate * (change + self.decoupled_decay * weights), mean, square
