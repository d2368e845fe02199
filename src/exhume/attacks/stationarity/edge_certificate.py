"""Decide which meeting points of edges are proven to be training inputs, and state why the others are not.

Any ``n`` edges meet in ``n`` dimensions, and a search among many edges finds points where more of them meet by chance.
Edges of one layer also meet at points that are no inputs for a reason. The rows of a layer at rest are combinations of
what its inputs are at the training inputs that switch a unit on. So the units that one input leaves off have rows in a
smaller space, and all their edges meet where the layer's inputs are orthogonal to those of every other training input;
and if the rows of a whole layer have a low rank, all its edges meet wherever a few functions vanish. At a training
input the edges of *all* layers meet, and no structure of one layer puts a point on the edges of another.

So the first layer and the layers above it are two witnesses. The search for points sees the edges of the first layer
alone. If this search or the first layer's structure made a point, the edges above owe nothing to it: they pass it
at distances of a density that is measured around the point, and the number of those within a width is binomial. Nothing
has to be added for the search. If the structure of the upper layers made the point, either it leaves some direction
free, along which too few of their edges resist; or it determines the point, and then the first layer's edges owe
nothing to it, and the number of those that pass is binomial as well. The largest of these bounds is corrected for
the number of points. A network with one hidden layer has no certificate.
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
from scipy.stats import binom
from torch import Tensor

from exhume.attacks.stationarity.edge_fit import EdgeFit, EdgeRules, fewest_resisting, largest_error
from exhume.attacks.stationarity.edges import FAR, Edges
from exhume.attacks.stationarity.meeting_points import InputRange, MeetingPoints
from exhume.clues.subspace import InputSubspace
from exhume.core.chance import bound_log_tail

SHARE_OF_SPAN = 0.01
"""Share of the error rate that covers the noise of the span: bounds on normal errors hardly depend on their rate."""


class Doubt(StrEnum):
    """Why a candidate is not certified."""

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
    """Bound on the error of the values of each point; infinite where it may be no input."""

    @property
    def is_certified(self) -> Bool[Tensor, " point"]:
        """Which points are proven to be training inputs."""
        return torch.tensor([not doubt for doubt in self.doubts], dtype=torch.bool)

    def take(self, chosen: Int[Tensor, " chosen"]) -> "EdgeCertificate":
        """Return the certificate of the chosen points."""
        chosen = chosen.cpu()
        doubts = [self.doubts[number] for number in chosen.tolist()]
        return EdgeCertificate(doubts=doubts, log_p=self.log_p[chosen], errors=self.errors[chosen])


def certify_meeting_points(
    edges: Edges,
    within: InputRange,
    met: MeetingPoints,
    error_rate: float,
    span: InputSubspace | None = None,
    rules: EdgeRules | None = None,
) -> EdgeCertificate:
    """Decide which meeting points are proven.

    Args:
        edges: the edges of all layers.
        within: the range of inputs.
        met: the points; all that were found, since bounds are corrected for their number.
        error_rate: the probability, over the whole run, of certifying any point that was not trained on.
        span: the span of the inputs that is searched, with its noise; None: the searched space is exact.
        rules: the tuned numbers; None: their defaults.
    """
    rules, for_span = rules or EdgeRules(), SHARE_OF_SPAN * error_rate
    error_rate -= for_span
    slacks = torch.zeros(len(met))
    if span is not None:
        slacks = span.largest_errors(within.inputs(met.points), for_span / max(1, len(met)))
    evidence = [_weigh(edges, within, met, number, error_rate, rules) for number in range(len(met))]
    log_p = adjust_for_many([max(one) for one in evidence])

    def judge(number: int) -> tuple[Doubt, float]:
        point, own = met.points[number], evidence[number]
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
    return EdgeCertificate(
        doubts=[doubt for doubt, _ in judged],
        log_p=torch.tensor(log_p, dtype=torch.float64),
        errors=torch.tensor([error for _, error in judged], dtype=torch.float64),
    )


class _Evidence(NamedTuple):
    """Log of a bound on the probability of what is seen around a point, by what may have made the point."""

    first: float
    """The structure of the upper layers: how many edges of the first layer pass."""
    upper: float
    """The search, or the structure of the first layer: how many edges above it pass."""
    line: float
    """A line on which the edges of the upper layers meet: how many of them resist along any direction."""


def _weigh(
    edges: Edges, within: InputRange, met: MeetingPoints, number: int, error_rate: float, rules: EdgeRules
) -> _Evidence:
    """Weigh the evidence that a point is a training input; see :func:`certify_meeting_points`.

    How dense edges are is measured around the point that is fitted to all of them. Those above the first layer are
    counted at the point as it was found, without them. Lines are not looked for where other evidence is too weak.
    """
    led, point, upper = met.led[number], met.points[number], edges.upper_layers()
    of_first, of_upper, unseen = (
        _local(of, at)[0].abs() / met.scale for of, at in ((edges.first_layer(), point), (upper, point), (upper, led))
    )
    chance = chance_of_edge(of_upper, rules)
    by_first = log_p_hits(int((of_first < rules.width).sum()), len(of_first), chance_of_edge(of_first, rules))
    by_upper = log_p_hits(int((unseen < rules.width).sum()), len(unseen), chance)
    if max(by_first, by_upper) >= math.log(error_rate):
        return _Evidence(by_first, by_upper, 0.0)
    width = rules.width * met.scale
    resisting = fewest_resisting(_fit(upper, led, width), within, met.led, number, width, rules.precision)
    lines = edges.dimension * (edges.dimension + 1) // 2  # one per pair of inputs
    return _Evidence(by_first, by_upper, log_p_hits(resisting, len(unseen), chance) + math.log(lines))


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
    """Return the log probability that chance brings so many of these edges to a given point, or a bound of it."""
    tail = float(binom.sf(hits - 1, edges, chance))
    return math.log(tail) if tail > 0 else float(bound_log_tail(np.array([float(hits)]), edges, np.array([chance]))[0])


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
