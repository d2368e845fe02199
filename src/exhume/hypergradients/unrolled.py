"""Unrolled trainings: a number of steps, differentiated one by one from the last to the first. Mathematics only."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.hypergradients.problem import Flat, Inputs, Pullback, Statistics, TrainingProblem
from exhume.hypergradients.rules import MomentumRule, Rule, State

KEPT_BYTES = 2**32
"""Memory for states of an unrolled training beyond which some are recomputed: a part of any GPU's."""


@dataclass(frozen=True, kw_only=True)
class Unrolled:
    """Train for a number of steps on the whole batch, and differentiate through each step.

    Needs neither convexity nor a stationary point. Each autograd graph spans one step. States are kept as far as
    ``KEPT_BYTES`` allow; otherwise only every ``√steps``-th is, and the pullback recomputes the states between, so that
    memory grows with the square root of the steps.
    """

    steps: int
    rate: float
    rule: Rule = field(default_factory=MomentumRule)
    statistics_decay: float | None = None
    """Part of the running statistics that a step keeps; None: they are not followed."""

    def __call__(self, problem: TrainingProblem, start: Flat, inputs: Inputs) -> tuple[Flat, Pullback]:
        """Return the weights after the last step, and their pullback to the inputs."""
        (weights, *others), pull = self.trace(problem, self.begin(start), inputs)

        def pullback(cotangent: Tensor) -> Tensor:
            return pull((cotangent, *map(torch.zeros_like, others)))[0]

        return weights, pullback

    def begin(self, start: Flat, statistics: Statistics | None = None) -> State:
        """Return the state before the first step; running statistics come last, where they are followed."""
        state = self.rule.begin(start)
        return state if self.statistics_decay is None or statistics is None else (*state, statistics)

    def trace(
        self, problem: TrainingProblem, state: State, *data: Tensor
    ) -> tuple[State, Callable[[State], tuple[Tensor, ...]]]:
        """Train on ``data``: inputs, then targets and the rate where these are to be differentiated as well.

        Returns:
            The state after the last step, and the map from its cotangents to the gradient by each of ``data``.
        """
        size = sum(part.numel() * part.element_size() for part in state)
        stride = 1 if size * self.steps <= KEPT_BYTES else max(1, math.isqrt(self.steps))
        kept = []
        for step in range(self.steps - 1):
            if step % stride == 0:
                kept.append(state)
            state = self.advance(problem, state, step, *data)
        # The last step is the first to be differentiated, so its graph is kept and not made twice.
        end, pull_last = self._linearise(problem, state, self.steps - 1, data)

        def pull(cotangents: State) -> tuple[Tensor, ...]:
            cotangents, *gradients = pull_last(cotangents)
            for segment in reversed(range(len(kept))):
                first = segment * stride
                states = [kept[segment]]
                for step in range(first, min(first + stride, self.steps - 1) - 1):
                    states.append(self.advance(problem, states[-1], step, *data))
                for place in reversed(range(len(states))):
                    pull_step = self._linearise(problem, states[place], first + place, data)[1]
                    cotangents, *by_data = pull_step(cotangents)
                    gradients = [sum_ + part for sum_, part in zip(gradients, by_data, strict=True)]
            return tuple(gradients)

        return end, pull

    def advance(
        self,
        problem: TrainingProblem,
        state: State,
        step: int,
        inputs: Inputs,
        targets: Tensor | None = None,
        rate: Float[Tensor, ""] | None = None,
    ) -> State:
        """Return the state after one step."""
        length = self.rate if rate is None else rate
        if self.statistics_decay is None:
            return self.rule.advance(state, problem.gradient(state[0], inputs, targets), length, step)
        gradient, seen = problem.gradient_and_statistics(state[0], inputs, targets)
        *optimised, running = state
        kept = self.statistics_decay
        return *self.rule.advance(tuple(optimised), gradient, length, step), kept * running + (1 - kept) * seen

    def _linearise(
        self, problem: TrainingProblem, state: State, step: int, data: tuple[Tensor, ...]
    ) -> tuple[State, Callable[[State], tuple[Any, ...]]]:
        """Return the state after a step, and the map from its cotangents to those before it and by ``data``."""
        return torch.func.vjp(  # type: ignore[return-value]
            lambda before, *given: self.advance(problem, before, step, *given), state, *data
        )


def one_step(weight_decay: float) -> Unrolled:
    """Return a lower level of a single step of length ``1/w``, which tests whether the weights are stationary.

    From the target weights it moves by ``−∇θE/w = Σ_j l_j ∇f(x_j) − θ`` with multipliers tied to the loss and the
    labels: the move is the residual of the tied stationarity attack.
    """
    return Unrolled(steps=1, rate=1.0 / weight_decay)
