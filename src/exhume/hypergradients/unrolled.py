"""Unrolled trainings: a number of steps, differentiated one by one from the last to the first. Mathematics only."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

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
        for step in range(self.steps):
            if step % stride == 0:
                kept.append(state)
            state = self.advance(problem, state, step, *data)

        def pull(cotangents: State) -> tuple[Tensor, ...]:
            gradients = tuple(torch.zeros_like(part) for part in data)
            for segment in reversed(range(len(kept))):
                first = segment * stride
                states = [kept[segment]]
                for step in range(first, min(first + stride, self.steps) - 1):
                    states.append(self.advance(problem, states[-1], step, *data))
                for place in reversed(range(len(states))):
                    cotangents, by_data = self._pull_step(problem, states[place], first + place, data, cotangents)
                    gradients = tuple(sum_ + part for sum_, part in zip(gradients, by_data, strict=True))
            return gradients

        return state, pull

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

    def _pull_step(
        self, problem: TrainingProblem, state: State, step: int, data: tuple[Tensor, ...], cotangents: State
    ) -> tuple[State, tuple[Tensor, ...]]:
        """Return the cotangents before a step, and the gradient of the step by each of ``data``."""
        pull = torch.func.vjp(lambda before, *given: self.advance(problem, before, step, *given), state, *data)[1]
        before, *by_data = pull(cotangents)
        return before, tuple(by_data)


def one_step(weight_decay: float) -> Unrolled:
    """Return a lower level of a single step of length ``1/w``, which tests whether the weights are stationary.

    From the target weights it moves by ``−∇θE/w = Σ_j l_j ∇f(x_j) − θ`` with multipliers tied to the loss and the
    labels: the move is the residual of the tied stationarity attack.
    """
    return Unrolled(steps=1, rate=1.0 / weight_decay)
