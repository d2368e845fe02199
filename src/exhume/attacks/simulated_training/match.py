"""The distance of a simulated training's change from the real one, and its gradient by candidates. Mathematics only."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.hypergradients import Flat, Inputs, TrainingProblem, Unrolled
from exhume.hypergradients.problem import Statistics
from exhume.hypergradients.rules import State
from exhume.optimise import Variables
from exhume.optimise.box import Box


@dataclass(frozen=True, kw_only=True)
class ChangeMatch:
    """``1 − cos(Δ(x), Δ)`` with the penalties of Tian et al. (2025) and ours, for candidates ``x``.

    Variables are the inputs, then the logits of labels, then the logarithm of a factor of the rate, as far as these are
    learned.
    """

    problem: TrainingProblem
    lower: Unrolled
    initial: Flat
    change: Flat
    """The real change of the weights."""
    targets: Float[Tensor, "class output"] | Float[Tensor, "candidate output"]
    """The targets of the candidates; where labels are learned, the target of each class."""
    learns_labels: bool = False
    learns_rate: bool = False
    norm_weight: float = 0.0
    variation_weight: float = 0.0
    box: Box | None = None
    box_weight: float = 0.0
    statistics: tuple[Statistics, Statistics, Statistics] | None = None
    """Running statistics before training, after it, and the unit of each."""
    statistics_weight: float = 0.0
    sharpness: tuple[float, float] | None = None
    """First and last sharpness of smooth ReLUs; None: they are exact."""

    def objective(self, variables: Variables, elapsed: Float[Tensor, ""]) -> tuple[Float[Tensor, ""], Variables]:
        """Return the value and its gradient by each variable."""
        inputs = variables[0]
        problem = self._smooth_problem(elapsed)
        targets, pull_targets = self._targets(variables)
        rate = self._rate(variables)
        end, pull = self.lower.trace(problem, self._begin(), inputs, targets, rate)
        value, to_weights = self._mismatch(end[0] - self.initial)
        cotangents = [to_weights, *map(torch.zeros_like, end[1:])]
        if self.statistics is not None:
            _, real, unit = self.statistics
            left = (end[-1] - real) / unit
            value = value + self.statistics_weight * left.square().mean()
            cotangents[-1] = 2 * self.statistics_weight * left / unit / len(left)
        to_inputs, to_targets, to_rate = pull(tuple(cotangents))
        if self.variation_weight > 0:
            slope, variation = torch.func.grad_and_value(self.variation)(inputs)
            value, to_inputs = value + self.variation_weight * variation, to_inputs + self.variation_weight * slope
        if self.box is not None and self.box_weight > 0:
            penalty, slope = self.box.penalty(inputs, self.box_weight / inputs.numel())
            value, to_inputs = value + penalty, to_inputs + slope
        to_log_rate = ((to_rate * rate)[None],) if self.learns_rate else ()
        return value, (to_inputs, *pull_targets(to_targets), *to_log_rate)

    def variation(self, inputs: Inputs) -> Float[Tensor, ""]:
        """Return the mean difference of neighbouring pixels, along rows and columns; zero for anything but images."""
        shape = self.problem.input_shape
        if len(shape) < 2:
            return inputs.new_zeros(())
        images = inputs.reshape(len(inputs), *shape)
        return sum(
            (torch.diff(images, dim=dimension).abs().mean() for dimension in (-2, -1) if images.shape[dimension] > 1),
            start=inputs.new_zeros(()),
        )

    def distance(self, inputs: Inputs, targets: Tensor, rate: Tensor) -> Float[Tensor, ""]:
        """Return ``1 − cos(Δ(x), Δ)`` alone."""
        change = self.simulate(inputs, targets, rate)
        return 1 - torch.nn.functional.cosine_similarity(change, self.change, 0, 1e-30)

    def simulate(self, inputs: Inputs, targets: Tensor, rate: Tensor) -> Flat:
        """Return the change of the weights after training on candidates, without derivatives."""
        state = self._begin()
        for step in range(self.lower.steps):
            state = self.lower.advance(self.problem, state, step, inputs, targets, rate)
        return state[0] - self.initial

    def read(self, variables: Variables) -> tuple[Inputs, Tensor, Tensor]:
        """Return the inputs, targets and rate that variables stand for."""
        return variables[0], self._targets(variables)[0], self._rate(variables)

    def _smooth_problem(self, elapsed: Float[Tensor, ""]) -> TrainingProblem:
        """Return the problem with ReLUs that sharpen with the elapsed fraction of the search."""
        if self.sharpness is None:
            return self.problem
        first, last = self.sharpness
        now = (first * (last / first) ** elapsed).to(self.initial)
        fixed = self.problem.fixed
        return replace(self.problem, fixed={**fixed, **{name: now for name in fixed if name.endswith("sharpness")}})

    def _begin(self) -> State:
        return self.lower.begin(self.initial, None if self.statistics is None else self.statistics[0])

    def _rate(self, variables: Variables) -> Float[Tensor, ""]:
        rate = self.initial.new_full((), self.lower.rate)
        return rate * variables[-1][0].exp() if self.learns_rate else rate

    def _targets(self, variables: Variables) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, ...]]]:
        """Return the targets of the candidates, and the map from their cotangent to the gradient by learned logits."""
        if not self.learns_labels:
            return self.targets, lambda _: ()
        targets, pull = torch.func.vjp(lambda logits: logits.softmax(1) @ self.targets, variables[1])[:2]
        return targets, pull

    def _mismatch(self, simulated: Flat) -> tuple[Float[Tensor, ""], Flat]:
        """Return the cosine distance with the penalty of the norm, and the gradient by the simulated change."""
        tiny = torch.finfo(simulated.dtype).tiny
        size, real = simulated.norm().clamp(min=tiny), self.change.norm().clamp(min=tiny)
        cosine = simulated.dot(self.change) / (size * real)
        stretch = (size / real).log()
        value = 1 - cosine + self.norm_weight * stretch.square()
        to_size = (cosine + 2 * self.norm_weight * stretch) / size
        return value, to_size * simulated / size - self.change / (size * real)
