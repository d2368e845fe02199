"""Decide which meeting points of edges are proven to be training inputs, and state why the others are not.

Any ``n`` edges meet in ``n`` dimensions, and a search among many edges finds points where more of them meet by chance.
Edges of one layer also meet at points that are no inputs for a reason. The rows of a layer at rest are combinations of
what its inputs are at the training inputs that switch a unit on. So the units that one input leaves off have rows in a
smaller space, and all their edges meet where the layer's inputs are orthogonal to those of every other training input;
and if the rows of a whole layer have a low rank, all its edges meet wherever a few functions vanish. At a training
input the edges of *all* layers meet, and no structure of one layer puts a point on the edges of another.

So the first layer and the layers above it are two witnesses. Half of the units above the first layer are *held out*:
the search for meeting points does not see their edges. If the search or the first layer's structure made a point, these
edges owe nothing to it: they pass it at distances of a density that is measured around the point, and the number of
those within a width is binomial. Nothing has to be added for the search. If the structure of the upper layers made the
point, either it leaves some direction free, along which too few of their edges resist; or it determines the point, and
then the first layer's edges owe nothing to it, and the number of those that pass is binomial as well. Each bound is
multiplied by the number of points, of widths and of halves. A network with one hidden layer has no certificate.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhume.attacks.stationarity.edge_fit import EdgeFit, EdgeRules, largest_error, log_p_line
from exhume.attacks.stationarity.edges import FAR, Edges, Points
from exhume.attacks.stationarity.meeting_points import (
    BEYOND_FORCED,
    InputRange,
    MeetingPoints,
    find_meeting_points,
    keep_distinct,
)
from exhume.clues.subspace import InputSubspace
from exhume.core.chance import bound_log_tail
from exhume.core.run_context import RunContext

BEYOND_FORCED_IN_SEARCH = 1.2
"""Edges through a point that the search may use, in searched dimensions, from which it is judged by all edges."""


class Doubt(StrEnum):
    """Why a candidate is not certified; the first reason that applies."""

    NONE = ""
    SEARCH = "it was found by the search, and too few edges meet there"
    CHANCE = "chance may explain why its edges meet"
    ONE_LAYER = "the edges of a single layer meet there, as they do at points that are no inputs"
    LINE = "a line of points lies on most of its edges"
    NOISE = "its edges and the range of inputs leave it too imprecise"
    RANGE = "it lies outside the range of inputs"
    NOT_ASKED = "no proof was asked for"


@dataclass(frozen=True, kw_only=True)
class EdgeCertificate:
    """What is proven about meeting points."""

    doubts: list[Doubt]
    log_p: Float[Tensor, " point"]
    """Log of the bound on the probability that chance makes any such point."""
    errors: Float[Tensor, " point"]
    """Bound on the error of the values of each point; infinite where chance may explain it."""

    @property
    def is_certified(self) -> Bool[Tensor, " point"]:
        """Which points are proven to be training inputs."""
        return torch.tensor([not doubt for doubt in self.doubts], dtype=torch.bool)

    @classmethod
    def join(cls, parts: "Sequence[EdgeCertificate]") -> "EdgeCertificate":
        """Return the certificate of the points of all parts."""
        doubts = [doubt for part in parts for doubt in part.doubts]
        log_p, errors = (torch.cat([getattr(part, name) for part in parts]) for name in ("log_p", "errors"))
        return cls(doubts=doubts, log_p=log_p, errors=errors)

    def take(self, chosen: Int[Tensor, " chosen"]) -> "EdgeCertificate":
        """Return the certificate of the chosen points."""
        chosen = chosen.cpu()
        doubts = [self.doubts[number] for number in chosen.tolist()]
        return EdgeCertificate(doubts=doubts, log_p=self.log_p[chosen], errors=self.errors[chosen])


def search_and_certify(
    edges: Edges,
    within: InputRange,
    starts: Points,
    most: int,
    error_rate: float,
    context: RunContext,
    rules: EdgeRules | None = None,
    span: InputSubspace | None = None,
) -> tuple[MeetingPoints, EdgeCertificate] | None:
    """Find points where edges meet around the starts, and decide which are proven; None if there is no point.

    Args:
        edges: the edges.
        within: the range of inputs.
        starts: approximate inputs.
        most: largest number of points per search.
        error_rate: the probability, over the whole run, of certifying anything that was not trained on.
        context: its generator draws starting points and the halves of the units above the first layer.
        rules: the tuned numbers; None: their defaults.
        span: the span of the inputs that is searched, with its noise; None: the searched space is exact.
    """
    rules = rules or EdgeRules()
    edges = edges.with_slopes_at(starts)
    halves = [half for half in edges.upper_layers().divide(context.generator) if half.count]
    parts = []
    for number, held_out in enumerate(halves or [edges.upper_layers()], 1):
        stage = f"edges, part {number} of {max(1, len(halves))}"
        searched = edges.without(held_out)
        met = find_meeting_points(searched, within, starts, most, context, stage=stage, least=BEYOND_FORCED_IN_SEARCH)
        if len(met.points):
            rate = error_rate / max(1, len(halves))
            parts.append(certify_meeting_points(edges, held_out, within, met, rate, rules, span))
    return _join([part for part in parts if len(part[0].points)])


def certify_meeting_points(
    edges: Edges,
    held_out: Edges,
    within: InputRange,
    met: MeetingPoints,
    error_rate: float,
    rules: EdgeRules,
    span: InputSubspace | None = None,
) -> tuple[MeetingPoints, EdgeCertificate]:
    """Decide which meeting points are proven.

    Args:
        edges: all edges.
        held_out: those above the first layer that the search for the points did not see.
        within: the range of inputs.
        met: the points.
        error_rate: the probability of certifying any point that was not trained on.
        rules: the tuned numbers.
        span: the span of the inputs that is searched, with its noise; None: the searched space is exact.

    Returns:
        The points that lie on enough of all edges, fitted to all of them, and what is proven about each.
    """
    limit = math.log(error_rate)
    fitted = met.fitted_to(edges, within)
    first, upper = edges.first_layer(), edges.upper_layers()
    log_tests = math.log(max(1, len(met.points)) * len(rules.widths))
    slacks = torch.zeros(len(met.points))
    if span is not None:
        slacks = span.largest_errors(within.inputs(fitted.points), error_rate / max(1, len(met.points)))

    def judge(number: int) -> _Judgement:
        found, point = met.points[number], fitted.points[number]
        of_first, of_upper, of_held_out = (
            _local(of, at)[0].abs() / met.scale for of, at in ((first, point), (upper, point), (held_out, found))
        )
        chances = {width: chance_of_edge(of_upper, width, rules) for width in rules.widths}
        witnesses = (
            min(log_p_hits(of_first, width, chance_of_edge(of_first, width, rules)) for width in rules.widths),
            min(log_p_hits(of_held_out, width, chance) for width, chance in chances.items()),
        )
        log_p = min(0.0, max(witnesses) + log_tests)
        if log_p >= limit:
            return _Judgement(Doubt.ONE_LAYER if min(witnesses) + log_tests < limit else Doubt.CHANCE, log_p)
        if float(within.violation(point[None]).abs().amax()) > rules.precision:
            return _Judgement(Doubt.RANGE, log_p)
        best, slack = _Judgement(Doubt.LINE, log_p), float(slacks[number])
        for width, chance in chances.items():
            fit = _fit(upper, point, width * met.scale)
            if log_p_line(fit, within, fitted.points, number, len(of_upper), chance, slack, rules) < limit:
                error = largest_error(_fit(edges, point, width * met.scale), within, point, slack, rules)
                best = _Judgement(Doubt.NOISE, log_p, min(error, best.error))
        return replace(best, doubt=Doubt.NONE) if best.error <= rules.precision else best

    best = [judge(number) for number in range(len(met.points))]
    certificate = EdgeCertificate(
        doubts=[one.doubt for one in best],
        log_p=torch.tensor([one.log_p for one in best], dtype=torch.float64),
        errors=torch.tensor([one.error for one in best], dtype=torch.float64),
    )
    enough = (fitted.counts >= BEYOND_FORCED * edges.dimension).nonzero()[:, 0]
    return fitted.take(enough), certificate.take(enough)


@dataclass(frozen=True)
class _Judgement:
    """What the edges around a point show."""

    doubt: Doubt
    log_p: float
    error: float = math.inf


def _join(
    parts: Sequence[tuple[MeetingPoints, EdgeCertificate]],
) -> tuple[MeetingPoints, EdgeCertificate] | None:
    """Join the points of several searches, certified ones first, then those on most edges, each once."""
    if not parts:
        return None
    met, certificate = MeetingPoints.join([met for met, _ in parts]), EdgeCertificate.join([own for _, own in parts])
    score = met.counts.double().cpu() + certificate.is_certified.double() * (1 + float(met.counts.amax()))
    kept = keep_distinct(score.argsort(descending=True, stable=True), met.points, met.scale)
    return met.take(kept), certificate.take(kept)


def _local(edges: Edges, point: Float[Tensor, " free"]) -> tuple[Float[Tensor, " edge"], Float[Tensor, "edge free"]]:
    """Return the signed distances and the normals of the edges that count around a point."""
    local = edges.around(point[None])
    counts = local.distances[0].abs() < FAR
    return local.distances[0][counts], local.normals[0][counts]


def _fit(edges: Edges, point: Float[Tensor, " free"], width: float) -> EdgeFit:
    """Return the fit of a point to the edges within a width."""
    distances, normals = _local(edges, point)
    passing = distances.abs() < width
    return EdgeFit.of(distances[passing], normals[passing])


def chance_of_edge(sizes: Float[Tensor, " edge"], width: float, rules: EdgeRules) -> float:
    """Return the chance that an edge which owes nothing to a point passes it within a width.

    It is measured by the edges beyond the width. Distances are in units of the median distance.
    """
    ends = (width, rules.band * width, rules.band**2 * width)
    near, far = (int(((sizes >= low) & (sizes < high)).sum()) for low, high in itertools.pairwise(ends))
    return min(expect_within(near, far, rules.band) / max(1, len(sizes)), 1 - 1e-9)


def log_p_hits(sizes: Float[Tensor, " edge"], width: float, chance: float) -> float:
    """Bound the log probability that chance brings so many edges within a width of a given point."""
    if not len(sizes):
        return 0.0
    hits = np.array([float((sizes < width).sum())])
    return float(bound_log_tail(hits, len(sizes), np.array([chance]))[0])


def expect_within(near: int, far: int, band: float) -> float:
    """Return how many edges chance brings within a width, from the numbers in the two bands around it.

    Edges may crowd towards a point that is no input. Between bands their number grows by a factor, ``band`` where the
    density is constant and less where they crowd. It is taken at two standard deviations below its estimate, and not
    below 1.5, where twice as many lie within the width as in the next band.

    >>> expect_within(8, 1000, 10.0), expect_within(8, 8, 10.0)
    (1.0, 18.0)
    """
    growth = (far - 2 * math.sqrt(far)) / (near + 1 + 2 * math.sqrt(near + 1))
    return (near + 1) / (min(max(growth, 1.5), band) - 1)
