"""The search of the weight-difference attack: one or more problems after another, each from where the last ended."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from exhume.attacks.weight_difference.problem import WeightChange
from exhume.core.devices import has_fast_bfloat16
from exhume.core.run_context import RunContext
from exhume.optimise import (
    Adam,
    Decay,
    Minimum,
    Objective,
    Variables,
    minimise,
    minimise_together,
)
from exhume.optimise.outcomes import thin_history
from exhume.records import Outcome


class Stage(NamedTuple):
    """Some of the steps of a search."""

    places: tuple[float, ...]
    """Where gradients are taken, on the straight line from the initial weights (0) to the final ones (1)."""
    steps: int
    sharpness: tuple[float, float]


class Found(NamedTuple):
    """Where the search of one run ended."""

    problem: WeightChange
    """The last one, by which variables are read."""
    end: Minimum


@dataclass(frozen=True, kw_only=True)
class Search:
    """How to descend through the stages; see :class:`~exhume.attacks.weight_difference.WeightDifference`."""

    stages: tuple[Stage, ...]
    learning_rate: float
    decay: Decay
    tolerance: float
    patience: int
    coarse_share: float
    """Of all steps, the first ones, in which products may be rounded."""
    rounds_on_cpu: bool
    natural_unit: bool
    about: str
    """What a saved state must belong to."""

    def run(
        self,
        problems: Sequence[Sequence[WeightChange]],
        starts: Sequence[Variables],
        context: RunContext,
    ) -> list[Found]:
        """Descend from every start, all runs in one program.

        Args:
            problems: of every run, one a stage.
            starts: coordinates and raw duals of every run, for its first problem.
            context: the last stage is saved to its checkpoint; earlier ones are saved beside it until all is done.
        """
        last_stage = len(self.stages) - 1
        parts = [context.part(f"stage{number + 1}") for number in range(last_stage)] + [context]
        posed = [self._in_units(each[0], start) for each, start in zip(problems, starts, strict=True)]
        ends = self._descend(0, posed, starts, parts[0])
        for number in range(1, len(self.stages)):
            before, last = posed, ends
            posed, starts = [], []
            for old, end, each in zip(before, last, problems, strict=True):
                problem, start = self._carried_on(old, end.variables, each[number])
                posed.append(problem)
                starts.append(start)
            ends = [
                _joined(one, other)
                for one, other in zip(last, self._descend(number, posed, starts, parts[number]), strict=True)
            ]
        for part in parts[:-1]:
            part.discard_checkpoint()
        return [Found(problem, end) for problem, end in zip(posed, ends, strict=True)]

    def _in_units(self, problem: WeightChange, start: Variables) -> WeightChange:
        return problem.with_natural_unit(*start) if self.natural_unit else problem

    def _carried_on(self, old: WeightChange, variables: Variables, new: WeightChange) -> tuple[WeightChange, Variables]:
        """Return the next problem and its start: inputs as they are, their duals shared out among the points."""
        free, raw = variables
        points = new.points
        duals = (old.duals(raw).sum(0, keepdim=True) / points).expand(points, *raw.shape[1:]).contiguous()
        problem = self._in_units(new, (free, duals))
        return problem, (free, duals / problem.dual_unit)

    def _descend(
        self,
        number: int,
        problems: Sequence[WeightChange],
        starts: Sequence[Variables],
        context: RunContext,
    ) -> list[Minimum]:
        steps, space = self.stages[number].steps, problems[0].space
        whole, taken = (sum(one.steps for one in some) for some in (self.stages, self.stages[:number]))
        descent = Adam(
            steps=steps,
            # A step of one size along fewer coordinates moves every pixel less.
            learning_rates=(self.learning_rate * (space.size / max(1, space.dimension)) ** 0.5, self.learning_rate),
            decay=self.decay,
            tolerance=self.tolerance,
            patience=self.patience,
            coarse_share=min(max((self.coarse_share * whole - taken) / steps, 0.0), 1.0),
        )
        parts = [part for start, problem in zip(starts, problems, strict=True) for part in (*start, *problem.target)]
        saved = context.saved("search", {"attack": self.about}, *parts)

        def heard(stage: str, done: int, total: int, note: str = "") -> None:
            context.report(stage, taken + done, whole, note)

        if len(problems) == 1:
            problem = problems[0]
            end = minimise(
                problem.objective,
                starts[0],
                descent,
                scale=problem.size,
                progress=heard,
                stage="search",
                checkpoint=saved,
                coarse=self._coarse_objective(problem),
            )
            return [end]
        together = WeightChange.side_by_side(problems)
        return minimise_together(
            together.objective,
            tuple(torch.stack(parts) for parts in zip(*starts, strict=True)),
            descent,
            scales=[problem.size for problem in problems],
            progress=heard,
            stage="search",
            checkpoint=saved,
            coarse=self._coarse_objective(together),
        )

    def _coarse_objective(self, problem: WeightChange) -> Objective | None:
        """Return what stands in for the objective in coarse steps; None where the loop sees to it or nothing is won."""
        is_cpu = problem.target[0].device.type == "cpu"
        if not (self.rounds_on_cpu and is_cpu and has_fast_bfloat16()):
            return None
        return problem.rounded(torch.bfloat16).objective


def _joined(first: Minimum, second: Minimum) -> Minimum:
    """Return two descents as one; it diverged where either did."""
    return replace(
        second,
        history=thin_history(torch.cat([first.history, second.history])),
        steps=first.steps + second.steps,
        outcome=Outcome.DIVERGED if first.outcome is Outcome.DIVERGED else second.outcome,
    )
