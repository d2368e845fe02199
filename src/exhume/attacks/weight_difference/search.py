"""The search of the weight-difference attack: one or more stages, each from the end of the one before."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from exhume.attacks.weight_difference.problem import WeightChange
from exhume.core.progress import part_of
from exhume.core.run_context import RunContext
from exhume.optimise import Adam, Decay, Minimum, Objective, Variables, minimise, minimise_together
from exhume.optimise.outcomes import thin_history
from exhume.optimise.precision import Precision, coarse_share, short_dtype
from exhume.optimise.splitting import Splits
from exhume.records import Outcome


class Stage(NamedTuple):
    """Some of the steps of a search."""

    positions: tuple[float, ...]
    """Where gradients are taken, on the straight line from the initial weights (0) to the final ones (1)."""
    steps: int
    sharpness: tuple[float, float]


class Found(NamedTuple):
    """The end of one run."""

    problem: WeightChange
    """The problem of the last stage, which gives the variables their meaning."""
    end: Minimum


@dataclass(frozen=True, kw_only=True)
class Search:
    """Settings of a search; see :class:`~exhume.attacks.weight_difference.WeightDifference`."""

    stages: tuple[Stage, ...]
    learning_rate: float
    decay: Decay
    tolerance: float
    patience: int
    precision: Precision
    natural_unit: bool
    splits: int
    about: str
    """Identifies the search in its checkpoints."""

    def run(
        self,
        problems: Sequence[Sequence[WeightChange]],
        starts: Sequence[Variables],
        context: RunContext,
    ) -> list[Found]:
        """Minimise from every start, all runs in one program.

        Args:
            problems: one sequence per run, with one problem per stage.
            starts: coordinates and raw duals per run, for the first problem.
            context: the last stage is saved to its checkpoint; earlier ones are saved beside it until all is done.
        """
        parts = [context.part(f"stage{number + 1}") for number in range(len(self.stages) - 1)] + [context]
        current = [self._with_unit(each[0], start) for each, start in zip(problems, starts, strict=True)]
        ends = self._minimise(0, current, starts, parts[0])
        for number in range(1, len(self.stages)):
            continued = [
                self._continue(problem, end.variables, each[number])
                for problem, end, each in zip(current, ends, problems, strict=True)
            ]
            current = [problem for problem, _ in continued]
            later = self._minimise(number, current, [start for _, start in continued], parts[number])
            ends = [_join(one, other) for one, other in zip(ends, later, strict=True)]
        for part in parts[:-1]:
            part.discard_checkpoint()
        return [Found(problem, end) for problem, end in zip(current, ends, strict=True)]

    def _with_unit(self, problem: WeightChange, start: Variables) -> WeightChange:
        return problem.with_natural_unit(*start) if self.natural_unit else problem

    def _continue(self, old: WeightChange, variables: Variables, new: WeightChange) -> tuple[WeightChange, Variables]:
        """Return the next problem and its start: the same inputs, with their duals divided among the points."""
        free, raw = variables
        points = new.points
        duals = (old.duals(raw).sum(0, keepdim=True) / points).expand(points, *raw.shape[1:]).contiguous()
        problem = self._with_unit(new, (free, duals))
        return problem, (free, duals / problem.dual_unit)

    def _minimise(
        self,
        number: int,
        problems: Sequence[WeightChange],
        starts: Sequence[Variables],
        context: RunContext,
    ) -> list[Minimum]:
        """Minimise the problems of one stage."""
        steps = self.stages[number].steps
        all_steps, earlier_steps = (sum(one.steps for one in some) for some in (self.stages, self.stages[:number]))
        space = problems[0].space
        adam = Adam(
            steps=steps,
            learning_rates=(self.learning_rate * space.stretch * space.unit, self.learning_rate),
            decay=self.decay,
            tolerance=self.tolerance,
            patience=self.patience,
            coarse_share=min(max((coarse_share(self.precision) * all_steps - earlier_steps) / steps, 0.0), 1.0),
        )
        parts = [part for start, problem in zip(starts, problems, strict=True) for part in (*start, *problem.target)]
        saved = context.saved("search", {"attack": self.about}, *parts)
        report = part_of(context.report, earlier_steps, all_steps)
        if len(problems) == 1:
            problem = problems[0]
            end = minimise(
                problem.objective,
                starts[0],
                adam,
                scale=problem.size,
                progress=report,
                stage="search",
                checkpoint=saved,
                coarse=self._coarse_objective(problem),
                splits=self._splits(number, problem, starts[0]),
            )
            return [end]
        together = WeightChange.side_by_side(problems)
        return minimise_together(
            together.objective,
            tuple(torch.stack(parts) for parts in zip(*starts, strict=True)),
            adam,
            scales=[problem.size for problem in problems],
            progress=report,
            stage="search",
            checkpoint=saved,
            coarse=self._coarse_objective(together),
            splits=self._splits(number, together, starts[0]),
        )

    def _splits(self, number: int, problem: WeightChange, start: Variables) -> Splits | None:
        """Return the splits of one stage."""
        if self.splits == 0:
            return None
        before, own, whole = (
            sum(one.steps for one in some)
            for some in (self.stages[:number], self.stages[number : number + 1], self.stages)
        )
        return Splits.plan(
            self.splits,
            steps=(before, own, whole),
            labels=torch.zeros(len(start[0]), dtype=torch.long, device=start[0].device),
            fields=problem.split_field,
            space=problem.space,
            dual_axis=-2,
        )

    def _coarse_objective(self, problem: WeightChange) -> Objective | None:
        """Return the objective with bfloat16 products for coarse steps on a CPU; None where that gains nothing."""
        short = short_dtype(self.precision, problem.target[0].device)
        return None if short is None else problem.rounded(short).objective


def _join(first: Minimum, second: Minimum) -> Minimum:
    """Return two minimisations as one, which diverged if either did."""
    return replace(
        second,
        history=thin_history(torch.cat([first.history, second.history])),
        steps=first.steps + second.steps,
        outcome=Outcome.DIVERGED if first.outcome is Outcome.DIVERGED else second.outcome,
    )
