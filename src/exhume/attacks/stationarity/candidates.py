"""Turn finished runs into candidates: pool the runs, add points where edges meet, and convert to pixels."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhume.attacks.stationarity.edge_certificate import Doubt, EdgeCertificate, certify_meeting_points
from exhume.attacks.stationarity.edges import Edges
from exhume.attacks.stationarity.meeting_points import InputRange, MeetingPoints, find_meeting_points
from exhume.attacks.stationarity.problem import StationarityProblem
from exhume.attacks.stationarity.runs import FinishedRuns
from exhume.clues.clues import clues_of
from exhume.core.correlation import agreement_between_runs, standardise
from exhume.core.run_context import RunContext
from exhume.core.suppression import suppress_neighbours
from exhume.records import AttackerView

STUCK = 2.0
"""Residual, relative to the best run's, above which a run got stuck; its candidates would only dilute the others."""
POINTS = 2
"""Largest number of points where edges meet, per candidate of a run: some may be no inputs."""
ROWS_AT_ONCE = 512
"""Candidates that are compared with all others in one product when near-duplicates are merged."""


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
    certificate: EdgeCertificate | None
    """What is proven about the meeting points; None where no proof was asked for."""

    @property
    def exact(self) -> int:
        """Number of candidates that are meeting points."""
        return 0 if self.met is None else len(self.met.points)

    @property
    def certified(self) -> Bool[Tensor, " candidate"]:
        """Which candidates are proven."""
        certified = torch.zeros(len(self.inputs), dtype=torch.bool)
        if self.certificate is not None:
            certified[: self.exact] = self.certificate.is_certified
        return certified

    @property
    def p_values(self) -> Float[Tensor, " candidate"]:
        """P-value of each certificate; 1 for candidates of the search."""
        p_values = torch.ones(len(self.inputs), dtype=torch.float64)
        if self.certificate is not None:
            p_values[: self.exact] = self.certificate.log_p.exp()
        return p_values

    @property
    def error_bounds(self) -> list[float | None]:
        """Bound on the error of the values of each candidate; None where nothing bounds it."""
        own = [] if self.certificate is None else self.certificate.errors.tolist()
        bounds = [error if math.isfinite(error) else None for error in own]
        return bounds + [None] * (len(self.inputs) - len(bounds))

    @property
    def doubts(self) -> list[Doubt]:
        """Why each candidate is not proven."""
        own = [Doubt.NOT_ASKED] * self.exact if self.certificate is None else self.certificate.doubts
        return own + [Doubt.SEARCH] * (len(self.inputs) - len(own))


def collect_candidates(
    view: AttackerView,
    problem: StationarityProblem,
    runs: FinishedRuns,
    *,
    similar: float,
    edges: bool,
    error_rate: float | None,
    context: RunContext,
) -> Candidates:
    """Pool the candidates of the runs that did not get stuck, and find the points where edges meet.

    With an ``error_rate`` these points are judged, by edges that the search for them does not see.
    """
    order = runs.residuals.argsort()
    kept = order[runs.residuals[order] <= STUCK * runs.residuals[order[0]] + 1e-9]
    chosen = kept.to(runs.free.device)
    free = runs.free[chosen].flatten(0, 1)
    inputs = problem.inputs(free)
    duals_of_all = problem.duals(runs.free[chosen], runs.raw[chosen]).flatten(0, 1)
    agreement = agreement_between_runs(inputs, chosen.repeat_interleave(runs.free.shape[1]))
    means, leaders = merge_near_duplicates(inputs, agreement, similar)
    confidence = agreement[leaders]
    duals = duals_of_all[leaders]
    met, certificate = None, None
    if edges and (found := _find_meeting_points(view, problem, free, POINTS * runs.free.shape[1], error_rate, context)):
        met, certificate = found
        means = torch.cat([problem.inputs(met.points.to(means)), means])
        # The fraction of its edges that need not meet anywhere.
        beyond = 1 - problem.space.dimension / met.counts.double()
        if certificate is not None:
            beyond = torch.where(certificate.is_certified.to(beyond.device), 1.0, beyond)
        confidence = torch.cat([beyond.to(confidence), confidence])
        duals = torch.cat([_duals_of_nearest(met.points.to(free), free, duals_of_all), duals])
    return Candidates(
        inputs=means, confidence=confidence, duals=duals, kept_runs=kept, met=met, certificate=certificate
    )


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
    places = order.argsort().cpu()
    first, block = 0, torch.zeros(0, len(unit), dtype=torch.bool)

    def are_similar(candidate: int) -> Bool[Tensor, " candidate"]:
        # One product for many candidates: they are asked for in their order.
        nonlocal first, block
        place = int(places[candidate])
        if place >= first + len(block):
            first, block = place, (unit[order[place : place + ROWS_AT_ONCE]] @ unit.T >= similar).cpu()
        return block[place - first]

    leaders: list[int] = []
    owner = torch.zeros(len(unit), dtype=torch.long)
    for leader, group in suppress_neighbours(order, are_similar):
        owner[group] = len(leaders)
        leaders.append(leader)
    owner = owner.to(inputs.device)
    sums = inputs.new_zeros(len(leaders), inputs.shape[1]).index_add_(0, owner, inputs)
    counts = torch.bincount(owner, minlength=len(leaders))
    return sums / counts[:, None], torch.tensor(leaders, device=inputs.device)


def _find_meeting_points(
    view: AttackerView,
    problem: StationarityProblem,
    free: Tensor,
    most: int,
    error_rate: float | None,
    context: RunContext,
) -> tuple[MeetingPoints, EdgeCertificate | None] | None:
    """Find where edges meet around the candidates of all runs, and judge these points where that is asked for."""
    edges = Edges.of(view, problem.space)
    if edges is None or not bool(free.isfinite().all()):
        return None
    within = InputRange.of(problem.box, problem.space).to(free.device)
    starts = free.double()
    edges = edges.with_slopes_at(starts)
    met = find_meeting_points(edges, within, starts, context)
    if error_rate is None:
        certificate, best = None, met.choose(most)
    else:
        span = None if problem.space.basis is None else clues_of(view).span
        certificate = certify_meeting_points(edges, within, met, error_rate, span)
        best = met.choose(most, certificate.is_certified)
        certificate = certificate.take(best)
    return (met.take(best), certificate) if len(best) else None


def _duals_of_nearest(
    points: Float[Tensor, "point free"],
    free: Float[Tensor, "candidate free"],
    duals: Float[Tensor, "candidate output"],
) -> Float[Tensor, "point output"]:
    """Return the duals of the candidate nearest to each point."""
    return duals[torch.cdist(points, free).argmin(1)]


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
