"""Decide which meeting points of edges are proven to be training inputs, and state why the others are not.

Any ``n`` edges meet in ``n`` dimensions, and a search among many edges finds points where more of them meet by chance.
Edges of one layer also meet at points that are no inputs for a reason. The rows of a layer at rest are combinations of
what its inputs are at the training inputs that switch a unit on. So the units that one input leaves off have rows in a
smaller space, and all their edges meet where the layer's inputs are orthogonal to those of every other training input;
and if the rows of a whole layer have a low rank, all its edges meet wherever a few functions vanish. At a training
input the edges of *all* layers meet, and no structure of one layer puts a point on the edges of another.

So the first layer and the layers above it are two witnesses. The search for points to prove sees the edges of the first
layer alone. If this search or the first layer's structure made a point, the edges above owe nothing to it: they pass it
at distances of a density that is measured around the point, and the number of those within a width is binomial. Nothing
has to be added for the search. If the structure of the upper layers made the point, either it leaves some direction
free, along which too few of their edges resist; or it determines the point, and then the first layer's edges owe
nothing to it, and the number of those that pass is binomial as well. The largest of these bounds is corrected for
the number of points. A network with one hidden layer has no certificate, and neither has a point that the edges of the
first layer alone do not lead to: a second search, which sees all edges, adds such points.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhume.attacks.stationarity.edge_fit import EdgeFit, EdgeRules, fewest_resisting, largest_error
from exhume.attacks.stationarity.edges import FAR, Edges, Points
from exhume.attacks.stationarity.meeting_points import (
    BEYOND_FORCED,
    SAME_POINT,
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
    ALL_NEEDED = "the edges of the first layer alone do not lead there, so those above it are no witness"
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
    def of_unproven(cls, count: int) -> "EdgeCertificate":
        """Return the certificate of points that a search among the edges of all layers found."""
        ones = torch.ones(count, dtype=torch.float64)
        return cls(doubts=[Doubt.ALL_NEEDED] * count, log_p=0 * ones, errors=math.inf * ones)

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
        context: its generator draws starting points.
        rules: the tuned numbers; None: their defaults.
        span: the span of the inputs that is searched, with its noise; None: the searched space is exact.
    """
    edges = edges.with_slopes_at(starts)
    first, least = edges.first_layer(), BEYOND_FORCED_IN_SEARCH
    met = find_meeting_points(first, within, starts, most, context, stage="edges of the first layer", least=least)
    proven = certify_meeting_points(edges, within, met, error_rate, rules or EdgeRules(), span)
    others = find_meeting_points(edges, within, starts, most, context, stage="edges of all layers")
    return _join([part for part in (proven, (others, EdgeCertificate.of_unproven(len(others.points)))) if len(part[0])])


def certify_meeting_points(
    edges: Edges,
    within: InputRange,
    met: MeetingPoints,
    error_rate: float,
    rules: EdgeRules,
    span: InputSubspace | None = None,
) -> tuple[MeetingPoints, EdgeCertificate]:
    """Decide which meeting points are proven.

    Args:
        edges: the edges of all layers.
        within: the range of inputs.
        met: the points, found without the edges above the first layer.
        error_rate: the probability of certifying any point that was not trained on.
        rules: the tuned numbers.
        span: the span of the inputs that is searched, with its noise; None: the searched space is exact.

    Returns:
        The points that lie on enough of all edges, fitted to all of them, and what is proven about each.
    """
    fitted = met.fitted_to(edges, within)
    slacks = torch.zeros(len(met))
    if span is not None:
        slacks = span.largest_errors(within.inputs(fitted.points), error_rate / max(1, len(met)))
    evidence = [
        _weigh(edges, within, met, fitted.points, number, float(slacks[number]), rules) for number in range(len(met))
    ]
    log_p = adjust_for_many([max(one) for one in evidence])

    def judge(number: int) -> tuple[Doubt, float]:
        point, own = fitted.points[number], evidence[number]
        if log_p[number] >= math.log(error_rate):
            limit = math.log(error_rate / len(met))
            if max(own.first, own.upper) < limit:
                return Doubt.LINE, math.inf
            return (Doubt.ONE_LAYER if min(own.first, own.upper) < limit else Doubt.CHANCE), math.inf
        if float(within.violation(point[None]).abs().amax()) > rules.precision:
            return Doubt.RANGE, math.inf
        error = largest_error(
            _fit(edges, point, rules.width * met.scale), within, point, float(slacks[number]), rules.precision
        )
        return (Doubt.NONE if error <= rules.precision else Doubt.NOISE), error

    judged = [judge(number) for number in range(len(met))]
    certificate = EdgeCertificate(
        doubts=[doubt for doubt, _ in judged],
        log_p=torch.tensor(log_p, dtype=torch.float64),
        errors=torch.tensor([error for _, error in judged], dtype=torch.float64),
    )
    enough = (fitted.counts >= BEYOND_FORCED * edges.dimension).nonzero()[:, 0]
    return fitted.take(enough), certificate.take(enough)


class _Evidence(NamedTuple):
    """Log of a bound on the probability of what is seen around a point, by what may have made the point."""

    first: float
    """The structure of the upper layers: how many edges of the first layer pass."""
    upper: float
    """The search, or the structure of the first layer: how many edges above it pass."""
    line: float
    """A line on which the edges of the upper layers meet: how many of them resist along any direction."""


def _weigh(
    edges: Edges, within: InputRange, met: MeetingPoints, fitted: Points, number: int, slack: float, rules: EdgeRules
) -> _Evidence:
    """Weigh the evidence that a point is a training input; see :func:`certify_meeting_points`.

    How dense edges are is measured around the point that is fitted to all of them. Those above the first layer are
    counted at the point as it was found, without them.
    """
    found, upper = met.points[number], edges.upper_layers()
    of_first, of_upper, unseen = (
        _local(of, at)[0].abs() / met.scale
        for of, at in ((edges.first_layer(), fitted[number]), (upper, fitted[number]), (upper, found))
    )
    chance = chance_of_edge(of_upper, rules)
    resisting = fewest_resisting(_fit(upper, found, rules.width * met.scale), within, met.points, number, slack, rules)
    lines = edges.dimension * (edges.dimension + 1) // 2  # one per pair of inputs
    return _Evidence(
        log_p_hits(int((of_first < rules.width).sum()), len(of_first), chance_of_edge(of_first, rules)),
        log_p_hits(int((unseen < rules.width).sum()), len(unseen), chance),
        log_p_hits(resisting, len(unseen), chance) + math.log(lines),
    )


def adjust_for_many(log_p: Sequence[float]) -> list[float]:
    """Adjust log p-values for their number, so that they bound the probability of any false one (Holm 1979).

    >>> adjust_for_many([math.log(0.2), math.log(0.01), math.log(0.03)]) == [
    ...     math.log(0.2), math.log(0.01) + math.log(3), math.log(0.03) + math.log(2)
    ... ]
    True
    """
    order = np.argsort(log_p, kind="stable")
    steps = np.asarray(log_p, dtype=float)[order] + np.log(np.arange(len(order), 0, -1))
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 0.0)
    return [float(one) for one in adjusted]


def _join(
    parts: Sequence[tuple[MeetingPoints, EdgeCertificate]],
) -> tuple[MeetingPoints, EdgeCertificate] | None:
    """Join the points of several searches, certified ones first, then those on most edges, each once."""
    if not parts:
        return None
    met, certificate = MeetingPoints.join([met for met, _ in parts]), EdgeCertificate.join([own for _, own in parts])
    score = met.counts.double().cpu() + certificate.is_certified.double() * (1 + float(met.counts.amax()))
    kept = keep_distinct(score.argsort(descending=True, stable=True), met.points, SAME_POINT * met.scale)
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


def chance_of_edge(sizes: Float[Tensor, " edge"], rules: EdgeRules) -> float:
    """Return the chance that an edge which owes nothing to a point passes it.

    It is measured by the edges beyond the width. Distances are in units of the median distance.
    """
    ends = (rules.width, rules.band * rules.width, rules.band**2 * rules.width)
    near, far = (int(((sizes >= low) & (sizes < high)).sum()) for low, high in itertools.pairwise(ends))
    return min(expect_within(near, far, rules.band) / max(1, len(sizes)), 1 - 1e-9)


def log_p_hits(hits: int, edges: int, chance: float) -> float:
    """Bound the log probability that chance brings so many of these edges to a given point."""
    return float(bound_log_tail(np.array([float(hits)]), edges, np.array([chance]))[0]) if edges else 0.0


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
