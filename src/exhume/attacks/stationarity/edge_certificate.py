"""Decide which meeting points of edges are proven to be training inputs, and state why the others are not.

Any ``n`` edges meet in ``n`` dimensions, so every further edge through a point is a coincidence, or the training put it
there. If the offsets of ``K`` hyperplanes were independent, with a density ``ρ`` measured around the point, the
expected number of points with ``k`` of them within a width is at most the number of points where ``n`` meet times the
probability of ``k − n`` hits among the others. That bounds the probability that any such point exists, so nothing has
to be added for the number of points that were tried. ``C(K, n)`` bounds the number of points where ``n`` meet, and so
does ``√(C(K, n)·det NᵀN)·ρⁿ·V`` with the normals ``N`` and the volume ``V`` of the range of inputs.

The second bound, for ``k`` given hyperplanes: the offsets that allow a point form the image of the range under the
normals, of volume ``√det·V``, plus the projection of a cube of side ``2w`` on the other ``k − n`` dimensions, of volume
at most ``√C(k, n)·(2w)^(k−n)`` (a sum of minors whose squares add up to one). Sum over all sets of ``k`` by
Cauchy–Schwarz and Cauchy–Binet. Edges of upper layers count as the hyperplanes that they are around the point.

A point that is no input can also lie on many edges because a *line* does: all edges through two inputs contain the line
between them, and one more edge cuts it somewhere. So along every direction enough edges must resist. And with weight
decay the rows of the first layer are combinations of the inputs that switch their units on, so that all units which one
input leaves off meet at the point that is orthogonal to the other inputs. At an input itself the units that are off
owe nothing to it: a direction of the rows must vanish on all of them.
"""

import itertools
import math
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from pydantic import PositiveFloat
from scipy.optimize import linprog
from torch import Tensor

from exhume.attacks.stationarity.edges import FAR, Edges, Points
from exhume.attacks.stationarity.meeting_points import ROOM, InputRange, MeetingPoints, find_corners
from exhume.core.chance import bound_log_tail, log_choices
from exhume.core.settings import settings

UNBOUNDED = 1e3
"""How far an input without a range is taken to move along a line."""
NEARLY = 0.9
"""A narrower width is taken if it is this significant, compared with the most significant: it has less noise."""


TYPICAL_DENSITY = 0.27
"""Density of normally distributed distances at zero, in units of their median size; the least that is assumed."""
VOLUME_SAMPLES = 200_000
"""Points drawn to measure the volume of the range."""
UNSEEN = 10
"""Points inside the range that chance may hide among those drawn, with a probability of less than 10⁻⁴."""


class Doubt(StrEnum):
    """Why a candidate is not certified; the first reason that applies."""

    NONE = ""
    SEARCH = "it was found by the search, and too few edges meet there"
    CHANCE = "chance may explain why its edges meet"
    OFF = "units that are off there depend on it"
    LINE = "a line of points lies on most of its edges"
    NOISE = "its edges and the range of inputs leave it too imprecise"
    RANGE = "it lies outside the range of inputs"
    EXPERIMENTAL = "its proof is experimental and was not asked for"


@settings
class EdgeRules:
    """What counts as a meeting of edges, and as determined."""

    widths: tuple[PositiveFloat, ...] = (1e-4, 3e-4, 1e-3, 3e-3)
    """Distances up to which a point lies on an edge, in units of the median distance; the most significant is taken,
    and the probability multiplied by their number. Trainings of finite length leave inputs that far from edges."""
    band: PositiveFloat = 10.0
    """Ratio of the distances between which edges are counted to estimate how many chance brings within a width: from
    one width to this multiple, and from there to its square."""
    precision: PositiveFloat = 0.02
    """Largest error of a value, in units of the input; about five grey levels of 256."""
    noise_tail: PositiveFloat = 3.0
    """Error of a fitted point along a direction, in standard deviations of the fit. Directions that many edges fix err
    by more of their small deviations; the bound on values, which the weakest directions decide, was at least five times
    the true error in all measured networks."""
    edge_tail: PositiveFloat = 5.0
    """Change of the distance from an edge between the fitted point and the true input, in standard deviations of
    distances; at most 3.6 in all measured networks."""
    range_slack: PositiveFloat = 1.5e-3
    """How far a true input may lie outside its range, in units of the input, because the searched space is not known
    exactly; twice the largest measured."""
    off_share: PositiveFloat = 1e-4
    """Largest share of the first layer's units that an input leaves off in what the layer owes to this input. Measured:
    3e-6 at inputs, 6e-4 and more at other points where edges meet."""
    above_shuffled: PositiveFloat = 1.5
    """Factor by which edges must outnumber those that meet from the same point among shuffled edges."""


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

    def withheld(self) -> "EdgeCertificate":
        """Return the certificate with every proof turned into a doubt."""
        return replace(self, doubts=[doubt or Doubt.EXPERIMENTAL for doubt in self.doubts])


def certify_meeting_points(
    edges: Edges,
    within: InputRange,
    met: MeetingPoints,
    shuffled: Int[Tensor, " point"],
    *,
    error_rate: float,
    log_volume: float = math.inf,
    rules: EdgeRules | None = None,
) -> EdgeCertificate:
    """Decide which meeting points are proven.

    Args:
        edges: the edges that count.
        within: the range of inputs.
        met: the points.
        shuffled: for each point, the edges that meet where the same search leads from there among shuffled edges.
        error_rate: the probability, over the whole run, of certifying anything that was not trained on.
        log_volume: log of a bound on the volume of the range of inputs, see :func:`bound_log_volume`.
        rules: the tuned numbers; None: their defaults.
    """
    rules = rules or EdgeRules()
    doubts: list[Doubt] = []
    all_log_p, errors = [], []
    outside = within.violation(met.points).abs().amax(1)
    for number, point in enumerate(met.points):
        local = edges.around(point[None])
        counts = local.distances[0].abs() < FAR
        distances, normals = local.distances[0][counts] / met.scale, local.normals[0][counts]
        log_p, width, chance = log_p_meeting(
            distances, normals, log_volume - edges.dimension * math.log(met.scale), rules
        )
        is_on = distances.abs() < width
        fit = _Fit.of(distances[is_on] * met.scale, normals[is_on])
        all_log_p.append(log_p)
        errors.append(math.inf)
        limit = math.log(error_rate)
        if log_p >= limit or int(is_on.sum()) < rules.above_shuffled * int(shuffled[number]):
            doubts.append(Doubt.CHANCE)
        elif edges.share_of_off_units(point, rules.widths[-1] * met.scale) > rules.off_share:
            doubts.append(Doubt.OFF)
        elif log_p_line(fit, within, met.points, number, len(distances), chance, rules) >= limit:
            doubts.append(Doubt.LINE)
        elif float(outside[number]) > rules.precision:
            doubts.append(Doubt.RANGE)
        else:
            errors[-1] = largest_error(fit, within, point, rules)
            doubts.append(Doubt.NONE if errors[-1] <= rules.precision else Doubt.NOISE)
    return EdgeCertificate(
        doubts=doubts,
        log_p=torch.tensor(all_log_p, dtype=torch.float64),
        errors=torch.tensor(errors, dtype=torch.float64),
    )


def log_p_meeting(
    distances: Float[Tensor, " edge"], normals: Float[Tensor, "edge free"], log_volume: float, rules: EdgeRules
) -> tuple[float, float, float]:
    """Bound the log probability that any point has as many edges within a width by chance.

    Distances, and the volume of the range, are in units of the median distance.

    Returns:
        The bound for the most significant width (the narrowest that is nearly so), that width, and the chance that an
        edge lies within it.
    """
    size, (total, dimension) = distances.abs(), normals.shape
    if total <= dimension:
        return 0.0, rules.widths[0], 1.0
    log_sets = log_choices(total, dimension)
    spread = 0.5 * (log_sets + float(torch.linalg.slogdet(normals.T @ normals).logabsdet)) + log_volume
    found = []
    for width in rules.widths:
        ends = (0.0, width, rules.band * width, rules.band**2 * width)
        hits, near, far = (int(((size >= low) & (size < high)).sum()) for low, high in itertools.pairwise(ends))
        chance = min(expect_within(near, far, rules.band) / total, 1 - 1e-9)
        beyond = np.array([float(max(hits - dimension, 0))])
        tail = bound_log_tail(beyond, total - dimension, np.array([chance]))[0]
        density = max((near + 1) / (rules.band - 1) / total / (2 * width), TYPICAL_DENSITY)
        log_vertices = min(log_sets, spread + dimension * math.log(density))
        bound = float(tail) + log_vertices + math.log(len(rules.widths))
        found.append((min(bound, 0.0), width, chance))
    best = min(bound for bound, _, _ in found)
    return next(one for one in found if one[0] <= NEARLY * best)


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


def bound_log_volume(within: InputRange, generator: torch.Generator) -> float:
    """Bound the log of the volume of the range of inputs from above: the box around it, times the share that it fills.

    Random corners show along which axes the range is long.
    """
    if not within.is_finite:
        return math.inf
    dimension = within.axes.shape[1]
    if 6 * dimension > within.most_programs:
        return math.inf
    corners = find_corners(within, within.axes.new_zeros(0, dimension), 4 * dimension, generator)
    if len(corners) <= dimension:
        return math.inf
    directions = torch.linalg.svd(corners - corners.mean(0), full_matrices=True).Vh
    ends = within.farthest(torch.cat([directions, -directions]))
    if len(ends) < 2 * len(directions):
        return math.inf
    places = ends @ directions.T
    highest, lowest = places[: len(directions)].diagonal(), places[len(directions) :].diagonal()
    hits = 0
    for part in torch.split(torch.empty(VOLUME_SAMPLES, 0), 20_000):
        drawn = torch.rand(len(part), len(directions), generator=generator, dtype=torch.float64).to(lowest)
        violation = within.violation((lowest + (highest - lowest) * drawn) @ directions)
        hits += int((violation.abs().amax(1) <= ROOM).sum())
    share = min(1.0, (hits + UNSEEN + 4 * math.sqrt(hits)) / VOLUME_SAMPLES)
    return float((highest - lowest).clamp(min=1e-300).log().sum()) + math.log(share)


@dataclass(frozen=True)
class _Fit:
    """The least-squares fit of a point to its edges."""

    normals: Float[Tensor, "edge free"]
    noise: float
    """Standard deviation of the distances from the edges."""
    strengths: Float[Tensor, " free"]
    """Singular values of the normals: how well the edges determine each direction."""
    directions: Float[Tensor, "free free"]
    """Right singular vectors, one per row."""

    @classmethod
    def of(cls, distances: Float[Tensor, " edge"], normals: Float[Tensor, "edge free"]) -> "_Fit":
        dimension = normals.shape[1]
        _, strengths, directions = torch.linalg.svd(normals, full_matrices=True)
        padded = strengths.new_zeros(dimension)
        padded[: len(strengths)] = strengths
        free = max(len(distances) - dimension, 1)
        noise = float((distances.square().sum() / free).sqrt())
        return cls(normals, max(noise, 1e-15), padded, directions)


def largest_error(fit: _Fit, within: InputRange, point: Float[Tensor, " free"], rules: EdgeRules) -> float:
    """Bound the error of the values of a point: how far they can move while edges fit and the input stays in range."""
    spread = rules.noise_tail * fit.noise / fit.strengths.clamp(min=1e-300)
    axes = within.axes @ fit.directions.T
    bounds = (axes * spread).norm(dim=1)
    values = bounds.argsort(descending=True)
    doubtful = values[bounds[values] > rules.precision]
    if not len(doubtful) or not within.is_finite or 2 * len(doubtful) > within.most_programs:
        return float(bounds[values[0]])
    axes_of, inputs = axes.cpu().numpy(), within.inputs(point[None])[0]
    slack = rules.range_slack
    room = torch.cat([within.highest - inputs + slack, inputs - within.lowest + slack]).clamp(min=0).cpu().numpy()
    along = (fit.normals @ fit.directions.T).cpu().numpy()
    constraints = np.concatenate([axes_of, -axes_of, along, -along])
    room = np.concatenate([room, np.full(2 * len(along), rules.edge_tail * fit.noise)])
    limits = np.stack([-spread.cpu().numpy(), spread.cpu().numpy()], 1)
    worst = float(bounds[bounds <= rules.precision].max()) if bool((bounds <= rules.precision).any()) else 0.0
    for value in doubtful.tolist():
        for sign in (1.0, -1.0):
            found = linprog(-sign * axes_of[value], constraints, room, bounds=limits, method="highs")
            worst = max(worst, float(-found.fun) if found.status == 0 else math.inf)
            if worst > rules.precision:
                return worst
    return worst


def log_p_line(
    fit: _Fit, within: InputRange, points: Points, number: int, total: int, chance: float, rules: EdgeRules
) -> float:
    """Bound the log probability that chance makes edges resist along the direction where fewest do.

    One edge that cuts a line can always be chosen, among ``total``, and inputs have one line per pair.
    """
    point = points[number]
    others = torch.cat([points[:number], points[number + 1 :]]) - point
    directions = torch.cat([fit.directions, others / others.norm(dim=1, keepdim=True).clamp(min=1e-300)])
    directions = _sparsest(fit, directions)
    reach = _reach(within, point, directions, rules.range_slack)
    resisting = ((fit.normals @ directions.T).abs() * reach > rules.noise_tail * fit.noise).sum(0)
    moves = (within.axes @ directions.T).abs().amax(0) * reach
    resisting = resisting[moves > rules.precision]
    if not len(resisting):
        return -math.inf
    beyond = np.array([float(max(int(resisting.min()) - 1, 0))])
    dimension = fit.normals.shape[1]
    lines = math.log(dimension * (dimension + 1) / 2) + math.log(total)
    return float(bound_log_tail(beyond, total, np.array([chance]))[0]) + lines


def _sparsest(fit: _Fit, directions: Float[Tensor, "direction free"]) -> Float[Tensor, "more free"]:
    """Return the directions and those near them along which fewest edges resist, by re-weighted eigenvectors."""
    current = directions
    for width in np.geomspace(0.1, 1e-4, 12):
        weights = 1 / ((current @ fit.normals.T).square() + width**2)
        moments = (fit.normals.T * weights[:, None]) @ fit.normals
        current = torch.linalg.eigh(moments).eigenvectors[:, :, 0]
    return torch.cat([directions, current])


def _reach(
    within: InputRange, point: Float[Tensor, " free"], directions: Float[Tensor, "direction free"], slack: float
) -> Float[Tensor, " direction"]:
    """Return how far the input can move along each direction, either way, inside its range."""
    inputs = within.inputs(point[None])[0].clamp(within.lowest, within.highest)
    slopes = directions @ within.axes.T
    steepness = slopes.abs().clamp(min=1e-12)
    up = (torch.where(slopes > 0, within.highest - inputs, inputs - within.lowest) + slack) / steepness
    down = (torch.where(slopes > 0, inputs - within.lowest, within.highest - inputs) + slack) / steepness
    return torch.maximum(up.amin(1), down.amin(1)).clamp(max=UNBOUNDED)
