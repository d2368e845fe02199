"""Turn finished runs into candidates: pool the runs, add points where edges meet, and convert to pixels."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.attacks.stationarity.edges import Edges, MeetingPoints, find_meeting_points
from exhume.attacks.stationarity.problem import StationarityProblem
from exhume.attacks.stationarity.runs import FinishedRuns
from exhume.core.correlation import agreement_between_runs, standardise
from exhume.core.suppression import suppress_neighbours
from exhume.records import AttackerView

OUTSIDE_RANGE = 0.05
"""Largest distance of a meeting point from the range of inputs, relative to its norm."""
STUCK = 2.0
"""Residual, relative to the best run's, above which a run got stuck; its candidates would only dilute the others."""


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Candidates in network units: meeting points of edges first, then the pooled candidates of the runs."""

    inputs: Float[Tensor, "candidate value"]
    confidence: Float[Tensor, " candidate"]
    duals: Float[Tensor, "candidate output"]
    kept_runs: Int[Tensor, " kept"]
    """The runs that were pooled, the best first."""
    met: MeetingPoints | None
    """The meeting points; None where edges were not searched."""

    @property
    def exact(self) -> int:
        """Number of candidates that are meeting points."""
        return 0 if self.met is None else len(self.met.points)


def collect_candidates(
    view: AttackerView,
    problem: StationarityProblem,
    runs: FinishedRuns,
    *,
    similar: float,
    edges: bool,
    generator: torch.Generator,
) -> Candidates:
    """Pool the candidates of the runs that did not get stuck, and find the points where edges meet around them."""
    order = runs.residuals.argsort()
    kept = order[runs.residuals[order] <= STUCK * runs.residuals[order[0]] + 1e-9]
    chosen = kept.to(runs.free.device)
    free = runs.free[chosen].flatten(0, 1)
    inputs = problem.inputs(free)
    duals = torch.cat([problem.duals(runs.free[run], runs.raw[run]) for run in kept.tolist()])
    agreement = agreement_between_runs(inputs, chosen.repeat_interleave(runs.free.shape[1]))
    means, leaders = merge_near_duplicates(inputs, agreement, similar)
    confidence = agreement[leaders]
    met = _find_meeting_points(view, problem, free, generator) if edges else None
    if met is not None:
        means = torch.cat([problem.inputs(met.points.to(means)), means])
        certain = torch.where(met.determined, 1.0, agreement[met.starts].double()).to(confidence)
        confidence = torch.cat([certain, confidence])
        leaders = torch.cat([met.starts, leaders])
    return Candidates(inputs=means, confidence=confidence, duals=duals[leaders], kept_runs=kept, met=met)


def merge_near_duplicates(
    inputs: Float[Tensor, "candidate value"], confidence: Float[Tensor, " candidate"], similar: float
) -> tuple[Float[Tensor, "kept value"], Int[Tensor, " kept"]]:
    """Average near-duplicates, the most confident candidate first.

    Args:
        inputs: the candidates of all runs.
        confidence: the attacker's confidence in each.
        similar: the least correlation of a near-duplicate with the candidate it is averaged into; above 1: none is.

    Returns:
        The averages, and the index of the most confident candidate of each.

    >>> merge_near_duplicates(torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 3.0]]), torch.tensor([0.5, 0.9, 0.8]), 0.9)
    (tensor([[1., 0.],
            [0., 2.]]), tensor([1, 2]))
    """
    unit = standardise(inputs)
    order = confidence.argsort(descending=True, stable=True)
    groups = list(suppress_neighbours(order, lambda place: unit @ unit[place] >= similar))
    means = torch.stack([inputs[group.to(inputs.device)].mean(0) for _, group in groups])
    return means, torch.tensor([leader for leader, _ in groups], device=inputs.device)


def _find_meeting_points(
    view: AttackerView, problem: StationarityProblem, free: Tensor, generator: torch.Generator
) -> MeetingPoints | None:
    """Find where edges meet around the candidates of all runs, inside the range of inputs."""
    edges = Edges.of(view, problem.space)
    if edges is None or not bool(free.isfinite().all()):
        return None
    met = find_meeting_points(edges, free.double(), generator)
    if problem.box is None:
        return met
    inputs = problem.inputs(met.points.to(free))
    outside = problem.box.violation(inputs).norm(dim=1)
    return met.take(outside <= OUTSIDE_RANGE * inputs.norm(dim=1))


def to_pixels(
    view: AttackerView, inputs: Float[Tensor, "candidate value"], *, stretch: bool
) -> Float[Tensor, "candidate ..."]:
    """Return network inputs in pixel units, clamped to the pixel range; ``stretch`` scales each to fill the range."""
    pixels = view.to_pixels(inputs.float())
    if view.bounds is None:
        return pixels
    low, high = view.bounds
    if stretch:
        flat = pixels.flatten(1)
        least, most = flat.amin(1, keepdim=True), flat.amax(1, keepdim=True)
        flat = low + (high - low) * (flat - least) / (most - least).clamp(min=1e-12)
        pixels = flat.reshape(pixels.shape)
    return pixels.clamp(low, high)
