"""Many runs of one problem side by side, each with settings of its own, in one stacked program."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.attacks.stationarity.problem import KktProblem
from exhume.core.checkpoint import Checkpoint
from exhume.core.progress import Progress, no_progress
from exhume.optimise import Adam, Decay, Variables, minimise

Range = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Knobs:
    """What a run can be tuned by; one row a run."""

    input_rate: Float[Tensor, " run"]
    """How far an input value moves in a step."""
    multiplier_rate: Float[Tensor, " run"]
    spread: Float[Tensor, " run"]
    """Of the first guesses of inputs around the centre."""
    floor: Float[Tensor, " run"]
    """Under multipliers."""
    sharpness: Float[Tensor, " run"]
    """Of the gates that backpropagation sees."""

    @classmethod
    def drawn(cls, ranges: Mapping[str, Range], runs: int, generator: torch.Generator) -> "Knobs":
        """Draw every knob evenly on a logarithmic scale between the ends of its range."""
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
        """Return the knobs of some runs."""
        return Knobs(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})

    def row(self, run: int) -> dict[str, float]:
        """Return the knobs of one run as JSON values."""
        return {field.name: float(getattr(self, field.name)[run]) for field in fields(self)}


@dataclass(frozen=True, kw_only=True)
class Runs:
    """Where runs stand: coordinates of inputs, raw multipliers, and what each leaves unexplained."""

    free: Float[Tensor, "run candidate free"]
    raw: Float[Tensor, "run ..."]
    residuals: Float[Tensor, " run"]
    """Relative to the squared weights, by gates as soft as the run's own; without penalties."""
    history: Float[Tensor, " recorded"]
    """The mean objective of the runs, relative to the squared weights."""


def first_guesses(
    problem: KktProblem, candidates: int, outputs: int, knobs: Knobs, generator: torch.Generator
) -> Variables:
    """Draw coordinates and raw multipliers for every run, on the CPU, so that a seed means the same on any device."""
    like = problem.target[0]
    shape = problem.multipliers.shape(candidates, outputs)
    inputs = torch.randn(len(knobs), candidates, problem.space.size, generator=generator)
    raw = problem.multipliers.draw((len(knobs), *shape), generator)
    guesses = (knobs.spread.to(inputs)[:, None, None] * inputs).flatten(0, 1).to(like)
    return problem.space.project(guesses).reshape(len(knobs), candidates, -1).contiguous(), raw.to(like)


def follow(
    problem: KktProblem,
    start: Variables,
    knobs: Knobs,
    *,
    steps: int,
    decay: Decay = "cosine",
    coarse_share: float = 0.0,
    progress: Progress = no_progress,
    stage: str = "search",
    checkpoint: Checkpoint | None = None,
) -> Runs:
    """Descend from every start at once, each at its own pace, by its own rules.

    Variables are counted in steps, so that Adam's one learning rate is each run's own. A run that leaves all bounds
    stays where it is and does not disturb the others.
    """
    like = start[0]
    # A step of one size along fewer coordinates moves every value less.
    stretch = (problem.space.size / max(1, problem.space.dimension)) ** 0.5
    rates = [
        (rate.to(like) * factor).reshape(-1, *[1] * (variable.ndim - 1))
        for rate, factor, variable in zip((knobs.input_rate, knobs.multiplier_rate), (stretch, 1.0), start, strict=True)
    ]
    sharpness, floor = knobs.sharpness.to(like), knobs.floor.to(like)
    evaluate = torch.func.vmap(problem.objective)
    scale = problem.size

    def objective(variables: Variables, elapsed: Float[Tensor, ""]) -> tuple[Float[Tensor, ""], Variables]:
        free, raw = (variable * rate for variable, rate in zip(variables, rates, strict=True))
        values, gradients = evaluate(free, raw, sharpness, floor)
        scaled = (
            (gradient * rate / scale * len(free[0])).nan_to_num(0.0, 0.0, 0.0)
            for gradient, rate in zip(gradients, rates, strict=True)
        )
        return (values / scale).nan_to_num(1e6, 1e6).clamp(max=1e6).mean(), tuple(scaled)

    end = minimise(
        objective,
        tuple(variable / rate for variable, rate in zip(start, rates, strict=True)),
        Adam(steps=steps, learning_rates=(1.0, 1.0), decay=decay, coarse_share=coarse_share),
        progress=progress,
        stage=stage,
        checkpoint=checkpoint,
    )
    free, raw = (variable * rate for variable, rate in zip(end.variables, rates, strict=True))
    with torch.no_grad():
        residuals = torch.stack([problem.residual(*one) for one in zip(free, raw, sharpness, strict=True)])
    return Runs(free=free, raw=raw, residuals=residuals.nan_to_num(torch.inf, torch.inf).cpu(), history=end.history)
