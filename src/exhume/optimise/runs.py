"""Runs of Adam that advance together, as tensors that change in place."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.core.errors import ExhumeError
from exhume.optimise.adam import Adam, LearningRate
from exhume.optimise.outcomes import Minimum, Variables, judge_outcome, thin_history
from exhume.optimise.splitting import Splits
from exhume.records import Outcome

RunsObjective = Callable[[Variables, Float[Tensor, ""]], tuple[Float[Tensor, " run"], Variables]]
"""Map variables with a first dimension of runs, and the elapsed fraction of the steps (0 to 1, on the device), to the
value of each run and the gradients."""

EPSILON = 1e-8
"""Added to the root of Adam's mean square, as in the paper, so that a zero gradient divides by no zero."""
SAVED = ("variables", "means", "squares")


@dataclass(frozen=True)
class _End:
    outcome: Outcome
    steps: int
    value: float


class Runs:
    """Minimisations under way, one per entry of ``scales``.

    Steps change tensors in place and never wait for the device, so that a CUDA graph can replay them. Only
    :meth:`inspect` reads values back. A run that diverges or comes to rest keeps its variables; the others go on.
    """

    def __init__(
        self, objective: RunsObjective, coarse: RunsObjective, start: Variables, adam: Adam, scales: Sequence[float]
    ) -> None:
        self.objective, self.coarse, self.adam, self.scales = objective, coarse, adam, scales
        self.variables = tuple(variable.detach().clone() for variable in start)
        self.safe = tuple(variable.clone() for variable in self.variables)
        self.means = tuple(torch.zeros_like(variable) for variable in start)
        self.squares = tuple(torch.zeros_like(variable) for variable in start)
        self.rates = tuple(
            _per_run(rate, variable, len(scales))
            for rate, variable in zip(adam.learning_rates, self.variables, strict=True)
        )
        like = start[0]
        self.step = torch.zeros(1, dtype=torch.int64, device=like.device)
        self.history = torch.zeros(adam.steps, len(scales), dtype=like.dtype, device=like.device)
        self.active = torch.ones(len(scales), dtype=torch.bool, device=like.device)
        self.ends: dict[int, _End] = {}
        self.taken = 0

    @property
    def is_over(self) -> bool:
        """Whether every run has ended."""
        return len(self.ends) == len(self.scales)

    @property
    def is_coarse(self) -> bool:
        """Whether the next step is one in coarse precision."""
        return self.taken < self.adam.coarse_steps

    def take_step(self) -> None:
        """Advance every active run by one step of Adam, without waiting for the device."""
        adam = self.adam
        elapsed = self.step[0].double() / adam.steps
        values, gradients = (self.coarse if self.is_coarse else self.objective)(self.variables, elapsed)
        self.history.index_copy_(0, self.step, values[None].to(self.history))
        self.step += 1
        count = self.step[0].double()
        mean_bias, square_bias = 1 - adam.mean_decay**count, 1 - adam.square_decay**count
        decay = torch.cos(math.pi * elapsed).add(1).div(2) if adam.decay == "cosine" else torch.ones_like(elapsed)
        for variable, gradient, mean, square, rate in zip(
            self.variables, gradients, self.means, self.squares, self.rates, strict=True
        ):
            mean.lerp_(gradient, 1 - adam.mean_decay)
            square.mul_(adam.square_decay).addcmul_(gradient, gradient, value=1 - adam.square_decay)
            root = (square / square_bias.to(square)).sqrt_().add_(EPSILON)
            change = mean.div(root).mul_((rate * decay / mean_bias).to(variable))
            if len(self.scales) > 1:  # a single run ends the loop when it ends
                active = self.active.reshape(-1, *[1] * (variable.ndim - 1))
                change = torch.where(active, change, torch.zeros((), dtype=change.dtype, device=change.device))
            variable.sub_(change)

    def inspect(self) -> None:
        """Read the values back, decide which runs have ended, and keep the state of those that are finite."""
        if self.taken == 0:
            return
        values = self.history[: self.taken]
        is_finite = torch.stack([torch.isfinite(variable).flatten(1).all(1) for variable in self.variables]).all(0)
        finite = (is_finite & torch.isfinite(values[-1])).tolist()
        resting = self._is_resting(values).tolist()
        for run, value in enumerate(values[-1].tolist()):
            if run in self.ends:
                continue
            if not finite[run]:
                self.ends[run] = _End(Outcome.DIVERGED, self.taken, value)
            elif self.taken == self.adam.steps or resting[run]:
                outcome = judge_outcome(values[:, run], self.scales[run], self.adam.tolerance)
                self.ends[run] = _End(outcome, self.taken, value)
        for run, end in self.ends.items():
            self.active[run] = False
            if end.outcome is Outcome.DIVERGED:
                for safe, variable in zip(self.safe, self.variables, strict=True):
                    variable[run] = safe[run]
        self._keep()

    def _is_resting(self, values: Float[Tensor, "step run"]) -> Bool[Tensor, " run"]:
        patience = self.adam.patience
        if not 0 < patience < len(values):
            return torch.zeros(len(self.scales), dtype=torch.bool)
        return values[-patience:].amin(0) >= 0.999 * values[:-patience].amin(0)

    def _keep(self) -> None:
        for safe, variable in zip(self.safe, self.variables, strict=True):
            safe.copy_(variable)

    def split(self, splits: Splits) -> None:
        """Split candidates of the runs that have not ended."""
        self.inspect()
        splits.apply(self.variables, (self.means, self.squares), self.active, self.taken)

    def note(self) -> str:
        """Return a progress note with the value of the best run, relative to its scale."""
        if self.taken == 0:
            return "residual nan"
        values = self.history[self.taken - 1].tolist()
        return f"residual {min(value / scale for value, scale in zip(values, self.scales, strict=True)):.1e}"

    def cut_short(self) -> list[Minimum]:
        """End every run where it is, and return the ends."""
        self.inspect()
        for run, value in enumerate(self.history[self.taken - 1].tolist()):
            self.ends.setdefault(run, _End(Outcome.STEPS_EXHAUSTED, self.taken, value))
        return self.minima()

    def minima(self) -> list[Minimum]:
        """Return the end of every run."""
        return [
            Minimum(
                variables=tuple(variable[run] for variable in self.safe),
                history=thin_history(self.history[: end.steps, run]).cpu(),
                steps=end.steps,
                value=end.value,
                outcome=end.outcome,
            )
            for run, end in sorted(self.ends.items())
        ]

    def pack(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the state that determines how the runs go on, as JSON values and tensors."""
        named = {f"{kind}/{number}": tensor for kind in SAVED for number, tensor in enumerate(getattr(self, kind))}
        ends = {str(run): [end.outcome.value, end.steps, repr(end.value)] for run, end in self.ends.items()}
        return {"taken": self.taken, "ends": ends}, named | {"history": self.history[: self.taken]}

    def unpack(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Restore the state that :meth:`pack` returned."""
        self.taken = values["taken"]
        self.step.fill_(self.taken)
        self.history[: self.taken] = tensors["history"].to(self.history)
        for kind in SAVED:
            for number, tensor in enumerate(getattr(self, kind)):
                tensor.copy_(tensors[f"{kind}/{number}"])
        self._keep()
        for run, (outcome, steps, value) in values["ends"].items():
            self.ends[int(run)] = _End(Outcome(outcome), steps, float(value))
            self.active[int(run)] = False


def _per_run(rate: LearningRate, variable: Tensor, runs: int) -> float | Tensor:
    """Return a learning rate in a shape that multiplies a variable; the rates of runs get its dimensions."""
    if not isinstance(rate, Tensor):
        return rate
    if rate.shape != (runs,):
        raise ExhumeError(f"A learning rate needs one value per run: {runs}, not {tuple(rate.shape)}.")
    return rate.to(variable.device, torch.float64).reshape(-1, *[1] * (variable.ndim - 1))
