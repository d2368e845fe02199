"""The stages of a search: trials that select settings, then runs of the winners. Each stage can be resumed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from exhume.attacks.stationarity.problem import StationarityProblem
from exhume.attacks.stationarity.runs import FinishedRuns, Knobs, Range, draw_starts, minimise_runs
from exhume.core.checkpoint import Checkpoint
from exhume.core.run_context import RunContext
from exhume.optimise import Variables
from exhume.optimise.precision import AnyPrecision


@dataclass(frozen=True, kw_only=True)
class SearchPlan:
    """The length of each stage, and what is searched; the fields are explained where an attack declares them."""

    attack: str
    """The ``repr`` of the attack, which identifies its checkpoints."""
    ranges: Mapping[str, Range]
    trials: int
    trial_steps: int
    winners: int
    restarts: int
    steps: int
    runs_at_once: int
    precision: AnyPrecision
    splits: int = 0

    @property
    def rounds(self) -> int:
        """Number of halvings after which no more than the winners are left."""
        return max(1, math.ceil(math.log2(self.trials / self.winners)))


class SearchStages:
    """The stages of one search. A stage that has ended is not repeated when the search is resumed."""

    def __init__(
        self, plan: SearchPlan, problem: StationarityProblem, candidates: int, outputs: int, context: RunContext
    ) -> None:
        self.plan, self.problem, self.candidates, self.outputs = plan, problem, candidates, outputs
        self.context = context
        self.parts: list[RunContext] = []
        # The file that the user named refuses other settings or data; the stages have files beside it.
        if (whole := context.saved("search", {"attack": plan.attack}, *problem.target)) is not None:
            whole.load()
            whole.save({}, {})

    def select_settings(self) -> tuple[Knobs, list[dict[str, Any]], FinishedRuns | None]:
        """Draw settings and keep the better half, round after round, until the winners are left.

        Returns:
            The winners' knobs, a record of every trial (its settings, its last residual, its number of rounds), and the
            runs of the round that the deadline cut short; None where there was time for all.
        """
        plan = self.plan
        if plan.trials == 1:
            middle = {name: ((low * high) ** 0.5,) * 2 for name, (low, high) in plan.ranges.items()}
            return Knobs.draw(middle, 1, self.context.generator), [], None
        knobs = Knobs.draw(plan.ranges, plan.trials, self.context.generator)
        start = self._draw_starts(knobs)
        numbers = torch.arange(plan.trials)
        trials: list[dict[str, Any]] = [{"settings": knobs.row(number)} for number in range(plan.trials)]
        for round_number in range(1, plan.rounds + 1):
            steps = plan.trial_steps * 2 ** (round_number - 1)
            stage = f"settings, round {round_number} of {plan.rounds}"
            runs = self._minimise(start, knobs, steps, stage, f"round{round_number}")
            for number, residual in zip(numbers.tolist(), runs.residuals.tolist(), strict=True):
                trials[number] |= {"residual": residual if math.isfinite(residual) else None, "rounds": round_number}
            if self.context.cut:  # what these runs found is more than a single step from new starts would find
                return knobs, trials, runs
            best = runs.residuals.argsort()[: max(plan.winners, len(knobs) // 2)]
            knobs, numbers = knobs.take(best), numbers[best]
            start = runs.free[best.to(runs.free.device)], runs.raw[best.to(runs.raw.device)]
        return knobs, trials, None

    def run_winners(self, winners: Knobs) -> FinishedRuns:
        """Run the winners' settings from new starts, in turn."""
        knobs = winners.take(torch.arange(self.plan.restarts) % len(winners))
        start = self._draw_starts(knobs)
        return self._minimise(start, knobs, self.plan.steps, "recover", "pool", self.plan.splits)

    def discard_checkpoints(self) -> None:
        """Remove the checkpoints of all stages, once the result is complete."""
        for part in (*self.parts, self.context):
            part.discard_checkpoint()

    def _draw_starts(self, knobs: Knobs) -> Variables:
        return draw_starts(self.problem, self.candidates, self.outputs, knobs, self.context.generator)

    def _minimise(
        self, start: Variables, knobs: Knobs, steps: int, stage: str, name: str, splits: int = 0
    ) -> FinishedRuns:
        chunks = torch.split(torch.arange(len(knobs)), self.plan.runs_at_once)
        return FinishedRuns.join(
            [
                minimise_runs(
                    self.problem,
                    tuple(variable[chunk.to(variable.device)] for variable in start),
                    knobs.take(chunk),
                    steps=steps,
                    precision=self.plan.precision,
                    progress=self.context.report,
                    stage=stage if len(chunks) == 1 else f"{stage}, part {number} of {len(chunks)}",
                    checkpoint=self._checkpoint(f"{name}-{number}", start, knobs, steps),
                    splits=splits,
                )
                for number, chunk in enumerate(chunks, 1)
            ]
        )

    def _checkpoint(self, name: str, start: Variables, knobs: Knobs, steps: int) -> Checkpoint | None:
        self.parts.append(self.context.part(name))
        about = {"attack": self.plan.attack, "steps": steps, "runs": len(knobs)}
        return self.parts[-1].saved("search", about, *start, *self.problem.target)
