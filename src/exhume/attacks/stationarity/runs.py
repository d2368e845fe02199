"""Runs of one problem side by side, each with its own settings, in one program."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated

import torch
from jaxtyping import Float, Int
from pydantic import AfterValidator, PositiveFloat
from torch import Tensor

from exhume.attacks.stationarity.multipliers import MarginMultipliers
from exhume.attacks.stationarity.problem import StationarityProblem
from exhume.core.checkpoint import Checkpoint
from exhume.core.progress import Progress, no_progress
from exhume.gradient_sums.curvature import GradientField
from exhume.optimise import Adam, Minimum, Variables, minimise_together
from exhume.optimise.precision import AnyPrecision, coarse_share, short_dtype
from exhume.optimise.runs import RunsObjective
from exhume.optimise.splitting import Splits
from exhume.records import Outcome


def _check_order(ends: tuple[float, float]) -> tuple[float, float]:
    if ends[0] > ends[1]:
        raise ValueError("a range from low to high")
    return ends


Range = Annotated[tuple[PositiveFloat, PositiveFloat], AfterValidator(_check_order)]
"""Lowest and highest value of a setting that is drawn."""
LARGEST_VALUE = 1e6
"""Value recorded for an objective that overflowed, relative to the squared weights."""


@dataclass(frozen=True, kw_only=True)
class Knobs:
    """The settings of runs that are searched, one value per run."""

    input_rate: Float[Tensor, " run"]
    """Change of an input value per step."""
    multiplier_rate: Float[Tensor, " run"]
    """Change of a multiplier per step."""
    init_std: Float[Tensor, " run"]
    """Standard deviation of initial candidates around the centre."""
    floor: Float[Tensor, " run"]
    """Value below which multipliers are penalised."""
    sharpness: Float[Tensor, " run"]
    """Sharpness of the gates in the derivatives."""

    @classmethod
    def draw(cls, ranges: Mapping[str, Range], runs: int, generator: torch.Generator) -> "Knobs":
        """Draw every knob uniformly on a logarithmic scale between the ends of its range."""
        places = torch.rand(len(fields(cls)), runs, generator=generator, dtype=torch.float64)
        return cls(
            **{
                field.name: ranges[field.name][0] * (ranges[field.name][1] / ranges[field.name][0]) ** place
                for field, place in zip(fields(cls), places, strict=True)
            }
        )

    def __len__(self) -> int:
        return len(self.floor)

    def take(self, chosen: Int[Tensor, " chosen"]) -> "Knobs":
        """Return the knobs of the chosen runs."""
        return Knobs(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})

    def row(self, run: int) -> dict[str, float]:
        """Return the knobs of one run as JSON values."""
        return {field.name: float(getattr(self, field.name)[run]) for field in fields(self)}


KNOBS = tuple(field.name for field in fields(Knobs))


@dataclass(frozen=True, kw_only=True)
class FinishedRuns:
    """The ends of runs."""

    free: Float[Tensor, "run candidate free"]
    raw: Float[Tensor, "run ..."]
    residuals: Float[Tensor, " run"]
    """Unexplained fraction of the squared weights, with gates as sharp as the run's own and without penalties."""
    history: Float[Tensor, " recorded"]
    """Mean objective of the runs that did not diverge, relative to the squared weights."""

    @classmethod
    def join(cls, parts: "Sequence[FinishedRuns]") -> "FinishedRuns":
        """Return the runs of all parts; the history is that of the first."""
        free, raw, residuals = (
            torch.cat([getattr(part, name) for part in parts]) for name in ("free", "raw", "residuals")
        )
        return cls(free=free, raw=raw, residuals=residuals, history=parts[0].history)


def draw_starts(
    problem: StationarityProblem, candidates: int, outputs: int, knobs: Knobs, generator: torch.Generator
) -> Variables:
    """Draw free coordinates and raw multipliers for every run, on the CPU, so that seeds agree between devices."""
    like = problem.target[0]
    shape = problem.multipliers.shape(candidates, outputs)
    inputs = torch.randn(len(knobs), candidates, problem.space.size, generator=generator)
    raw = problem.multipliers.draw((len(knobs), *shape), generator)
    inputs = (knobs.init_std.to(inputs)[:, None, None] * inputs).flatten(0, 1).to(like)
    return problem.space.project(inputs).reshape(len(knobs), candidates, -1).contiguous(), raw.to(like)


def minimise_runs(
    problem: StationarityProblem,
    start: Variables,
    knobs: Knobs,
    *,
    steps: int,
    precision: AnyPrecision = "float32",
    progress: Progress = no_progress,
    stage: str = "search",
    checkpoint: Checkpoint | None = None,
    splits: int = 0,
) -> FinishedRuns:
    """Minimise the objective from every start at once, each run with its own knobs."""
    like, candidates = start[0], start[0].shape[1]
    sharpness, floor = knobs.sharpness.to(like), knobs.floor.to(like)
    scale = problem.size

    def objective_of(posed: StationarityProblem) -> RunsObjective:
        def objective(variables: Variables, elapsed: Float[Tensor, ""]) -> tuple[Float[Tensor, " run"], Variables]:
            free, raw = variables
            values, gradients = posed.objective(free, raw, sharpness, floor)
            return values / scale, tuple(candidates / scale * gradient for gradient in gradients)

        return objective

    def fields(variables: Variables, elapsed: Float[Tensor, ""]) -> GradientField:
        free, raw = variables
        return problem.split_field(free, raw, sharpness)

    ends = minimise_together(
        objective_of(problem),
        start,
        Adam(
            steps=steps,
            learning_rates=(problem.space.stretch * knobs.input_rate, knobs.multiplier_rate),
            coarse_share=coarse_share(precision),
        ),
        scales=[1.0] * len(knobs),
        progress=progress,
        stage=stage,
        checkpoint=checkpoint,
        coarse=objective_of(_coarse(problem, precision, start, sharpness, floor)),
        splits=Splits.plan(
            splits,
            steps=(0, steps, steps),
            labels=_labels(problem, like),
            fields=fields,
            space=problem.space,
            dual_axis=1 - start[1].ndim,
        )
        if splits
        else None,
    )
    free, raw = (torch.stack(variables) for variables in zip(*(end.variables for end in ends), strict=True))
    with torch.no_grad():
        residuals = problem.residual(free, raw, sharpness)
    return FinishedRuns(
        free=free,
        raw=raw,
        residuals=residuals.nan_to_num(torch.inf, torch.inf).cpu(),
        history=_mean_history(ends),
    )


def _coarse(
    problem: StationarityProblem,
    precision: AnyPrecision,
    start: Variables,
    sharpness: Float[Tensor, " run"],
    floor: Float[Tensor, " run"],
) -> StationarityProblem:
    """Return the problem of the steps in coarse precision; that of TF32 where values leave the range of float16."""
    device = start[0].device
    short = short_dtype(precision, device)
    if short == torch.float16:
        shortened = problem.shortened()
        free, raw = start
        value, gradients = shortened.objective(free, raw, sharpness, floor)
        if all(bool(part.isfinite().all()) for part in (value, *gradients)):
            return shortened
    elif short is not None:
        return problem.rounded(short)
    # float16 has the resolution of TF32, and whole pictures are the largest tensors of a step.
    return replace(problem, box_dtype=torch.float16) if device.type == "cuda" else problem


def _labels(problem: StationarityProblem, like: Float[Tensor, "run candidate free"]) -> Int[Tensor, " candidate"]:
    """Return the label that is fixed for each candidate; 0 where none is."""
    if isinstance(problem.multipliers, MarginMultipliers):
        return problem.multipliers.labels
    return torch.zeros(like.shape[1], dtype=torch.long, device=like.device)


def _mean_history(ends: Sequence[Minimum]) -> Float[Tensor, " recorded"]:
    finite = [end.history for end in ends if end.outcome is not Outcome.DIVERGED] or [ends[0].history]
    return torch.stack(finite).mean(0).nan_to_num(LARGEST_VALUE).clamp(max=LARGEST_VALUE)
