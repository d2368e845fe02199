"""Points where the edges of many units meet: exact training inputs from the final weights alone.

Robust least squares moves every starting point to where most of the edges of the first layer around it meet. The range
of inputs takes part: directions in which few edges differ are left to it, and outside of it edges crowd around points
that are no inputs. Values of real pictures often lie exactly on an end of their range, so its faces attract like edges;
they do not count as edges. Starting points are the candidates of a search, mixtures of two, and corners of the range
that lie away from the points found before.

Only then do the edges above the first layer take part: every point is fitted to all edges near it, and reported if more
of them meet there than can be forced. Those above the first layer, which are linear in small regions only, make a
search slow, and find hardly any point that the first layer and the range do not lead to. What they did not lead to they
can testify for (:mod:`~exhume.attacks.stationarity.edge_certificate`).
"""

from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.optimize import linprog
from torch import Tensor

from exhume.attacks.stationarity.edges import Edges, Points
from exhume.clues.search_space import SearchSpace
from exhume.core.devices import numbers_at_once
from exhume.core.run_context import OutOfTime, RunContext
from exhume.core.suppression import suppress_neighbours
from exhume.optimise.box import Box

REACHES = (0.1, 0.2)
"""Distances within which edges attract a starting point, in units of the median distance of edges from the starts."""
ON_EDGE = 1e-3
"""Largest distance, in the same unit, of a point from an edge that it lies on."""
ROUNDS = 60
"""Rounds of re-weighted least squares per starting point."""
DAMPING = 0.03
"""Initial damping of the least squares; it shrinks with the reach."""
STEADY = 0.05
"""Values whose axis has less than this length inside the searched space hardly vary there; their faces say nothing."""
STARTS_PER_DIMENSION = 24
"""Starting points per searched dimension: candidates, and beyond their number mixtures of two."""
CORNER_ROUNDS = 3
"""Rounds in which corners of the range are starting points."""
CORNERS_PER_DIMENSION = 3
"""Corners per searched dimension and round."""
SURELY_FOUND = 2.0
"""Edges of the first layer through a point, per searched dimension, from which later rounds look away from it."""
LEAST_LED = 0.5
"""Least number of edges of the first layer through a point that is fitted to the edges of all layers, per searched
dimension: the range may determine the others."""
FITTED_PER_DIMENSION = 5
"""Points per searched dimension, at most, that are fitted."""
FITTED_WITHIN = 3.0
"""Distance of edges that take part in this fit, as a multiple of the distance of a point on an edge."""
BEYOND_FORCED = 1.5
"""Least number of edges through a reported point, per searched dimension; one each can always be forced."""
SAME_POINT = 0.1
"""Points closer than this, in units of the median distance of edges, are the same."""
MOST_OPERATIONS = 1e12
"""Multiplications that the search may take, and the fits after it, a few minutes of one CPU core each; points beyond
that are left out."""
ROOM = 1e-3
"""How far beyond their range values may lie: a searched space that noise has moved need not touch the range."""
MOST_PROGRAM_NUMBERS = 4e6
"""Numbers in all linear programs of one purpose, some seconds of one CPU core; beyond it there are fewer corners, and
the range is not used for bounds."""


@dataclass(frozen=True)
class InputRange:
    """The range of inputs as a function of free coordinates."""

    axes: Float[Tensor, "value free"]
    """The change of every value along the coordinates."""
    origin: Float[Tensor, " value"]
    """The input whose free coordinates are zero."""
    lowest: Float[Tensor, " value"]
    highest: Float[Tensor, " value"]

    @classmethod
    def of(cls, box: Box | None, space: SearchSpace) -> "InputRange":
        """Return the range inside a space; infinite where there is no box."""
        free = torch.eye(space.dimension, dtype=torch.float64)
        if space.basis is not None:
            free = free.to(space.basis.device)
        zero = torch.zeros_like(free[:1])
        wide = space.to(torch.float64)
        origin = wide.inputs(wide.coordinates(zero))[0]
        axes = (wide.inputs(wide.coordinates(free)) - origin).T
        ends = (-torch.inf, torch.inf) if box is None else (box.lowest, box.highest)
        lowest, highest = (torch.as_tensor(end).to(origin).expand_as(origin) for end in ends)
        return cls(axes, origin, lowest, highest)

    def to(self, device: torch.device) -> "InputRange":
        """Return the same range on a device."""
        return InputRange(**{field.name: getattr(self, field.name).to(device) for field in fields(self)})

    @property
    def is_finite(self) -> bool:
        """Whether every value has a range."""
        return bool(self.lowest.isfinite().all() & self.highest.isfinite().all())

    @property
    def most_programs(self) -> int:
        """Number of linear programs about the range that are affordable for one purpose."""
        return int(MOST_PROGRAM_NUMBERS / self.axes.numel())

    def inputs(self, points: Points) -> Float[Tensor, "point value"]:
        """Return the inputs at points."""
        return points @ self.axes.T + self.origin

    def violation(self, points: Points) -> Float[Tensor, "point value"]:
        """Return how far each value lies outside its range, with its sign."""
        inputs = self.inputs(points)
        return inputs - inputs.clamp(self.lowest, self.highest)

    def farthest(self, directions: Float[Tensor, "direction free"]) -> Float[Tensor, "corner free"]:
        """Return the point of the range that lies farthest along each direction, where there is one."""
        axes = self.axes.cpu().numpy()
        constraints = np.concatenate([axes, -axes])
        room = torch.cat([self.highest - self.origin, self.origin - self.lowest]).cpu().numpy() + ROOM
        limits = [(None, None)] * axes.shape[1]
        ends = [
            linprog(-direction, constraints, room, bounds=limits, method="highs")
            for direction in directions.cpu().numpy()
        ]
        corners = np.array([end.x for end in ends if end.status == 0]).reshape(-1, axes.shape[1])
        return torch.as_tensor(corners).to(self.axes)

    def faces_around(self, points: Points) -> tuple[Float[Tensor, "point face"], Float[Tensor, "face free"]]:
        """Return the signed distance of every value that varies from the nearer end of its range, and the normals."""
        lengths = self.axes.norm(dim=1)
        varies = (lengths > STEADY) & self.lowest.isfinite() & self.highest.isfinite()
        inputs = self.inputs(points)[:, varies]
        above, below = inputs - self.lowest[varies], inputs - self.highest[varies]
        nearer = torch.where(above.abs() < below.abs(), above, below)
        return nearer / lengths[varies], self.axes[varies] / lengths[varies, None]


@dataclass(frozen=True, kw_only=True)
class MeetingPoints:
    """Points where edges meet."""

    led: Points
    """The points as the edges of the first layer and the range show them, without those of upper layers."""
    points: Points
    """The same points, fitted to the edges of all layers."""
    counts: Int[Tensor, " point"]
    """Number of edges of all layers through each fitted point."""
    scale: float
    """The median distance of edges from the starting points, the unit of tolerances."""

    def __len__(self) -> int:
        return len(self.points)

    @classmethod
    def fit(cls, led: Points, edges: Edges, within: InputRange, scale: float) -> "MeetingPoints":
        """Fit points to the edges of all layers that pass nearby."""
        near, last = (ratio * ON_EDGE * scale for ratio in (FITTED_WITHIN, 0.1))
        parts = [move_to_meeting_points(edges, within, part, near, last) for part in _split(edges, led)]
        points = torch.cat(parts)
        return cls(led=led, points=points, counts=count_edges_through(edges, points, scale), scale=scale)

    def take(self, chosen: Int[Tensor, " chosen"]) -> "MeetingPoints":
        """Return the chosen points."""
        chosen = chosen.to(self.points.device)
        return MeetingPoints(
            led=self.led[chosen], points=self.points[chosen], counts=self.counts[chosen], scale=self.scale
        )

    def choose(self, most: int, certified: Bool[Tensor, " point"] | None = None) -> Int[Tensor, " chosen"]:
        """Return the places of the points on more edges than can be forced, each once, those on most edges first.

        Args:
            most: the largest number of points.
            certified: points that come before all others.
        """
        enough = self.counts >= BEYOND_FORCED * self.points.shape[1]
        rank = self.counts.double()
        if certified is not None and len(self):
            rank = rank + certified.to(rank) * (1 + rank.amax())
        order = rank.argsort(descending=True, stable=True)
        return keep_distinct(order[enough[order]], self.points, SAME_POINT * self.scale)[:most]


def keep_distinct(order: Int[Tensor, " ranked"], points: Points, distance: float) -> Int[Tensor, " kept"]:
    """Return the places of points that are further than a distance from all before them in the order."""
    groups = suppress_neighbours(order, lambda one: (points - points[one]).norm(dim=1) <= distance)
    return torch.tensor([one for one, _ in groups], dtype=torch.long, device=points.device)


def find_meeting_points(edges: Edges, within: InputRange, starts: Points, context: RunContext) -> MeetingPoints:
    """Find points where the edges of the first layer meet, around the starts and around corners of the range.

    Args:
        edges: the edges of all layers.
        within: the range of inputs.
        starts: approximate inputs.
        context: its generator draws starting points. A search that its deadline cuts short returns what it has.

    Returns:
        The points, fitted to the edges of all layers. Not all of them lie on more edges than can be forced.
    """
    first, dimension = edges.first_layer(), edges.dimension
    starts = _add_mixtures(starts, STARTS_PER_DIMENSION * dimension, context.generator)
    affordable = max(1, int(MOST_OPERATIONS / (len(REACHES) * ROUNDS * first.multiplications)))
    scale = edges.median_distance(starts[:64])
    led, counts = starts[:0], torch.zeros(0, dtype=torch.long, device=starts.device)
    for number in range(1 + CORNER_ROUNDS):
        try:
            context.report("edges", number, 1 + CORNER_ROUNDS, f"{len(led)} points")
        except OutOfTime as stop:
            if not stop.wraps_up:
                raise
            break
        starts = starts[:affordable]
        affordable -= len(starts)
        led = torch.cat([led, search_meeting_points(first, within, starts, scale)])
        counts = count_edges_through(first, led, scale)
        order = counts.argsort(descending=True, stable=True)
        kept = keep_distinct(order[counts[order] >= LEAST_LED * dimension], led, SAME_POINT * scale)
        led, counts = led[kept], counts[kept]
        if affordable <= 0 or not within.is_finite:
            break
        surely = led[counts >= SURELY_FOUND * dimension]
        starts = find_corners(within, surely, CORNERS_PER_DIMENSION * dimension, context.generator)
    most = min(FITTED_PER_DIMENSION * dimension, int(MOST_OPERATIONS / (ROUNDS * edges.multiplications)))
    return MeetingPoints.fit(led[:most], edges, within, scale)


def count_edges_through(edges: Edges, points: Points, scale: float) -> Int[Tensor, " point"]:
    """Count the edges that each point lies on."""
    parts = [edges.around(part).distances.abs() < ON_EDGE * scale for part in _split(edges, points)]
    return torch.cat([part.sum(1) for part in parts])


def search_meeting_points(edges: Edges, within: InputRange, starts: Points, scale: float) -> Float[Tensor, "end free"]:
    """Return where every start leads, once per reach."""
    return torch.cat(
        [
            move_to_meeting_points(edges, within, part, reach * scale, 0.1 * ON_EDGE * scale)
            for reach in REACHES
            for part in _split(edges, starts)
        ]
    )


def move_to_meeting_points(edges: Edges, within: InputRange, starts: Points, reach: float, last: float) -> Points:
    """Move every starting point to where most of the edges around it meet.

    Uses iteratively re-weighted least squares with a loss that ignores distant edges (Geman and McClure 1985), while
    the reach shrinks from ``reach`` to ``last``.
    """
    points = starts
    identity = torch.eye(edges.dimension, dtype=starts.dtype, device=starts.device)
    for round_number in range(ROUNDS):
        width = reach * (last / reach) ** (round_number / (ROUNDS - 1))
        distances, normals = edges.around(points)
        weights = _ignore_distant(distances, width)
        curvature = (normals * weights[..., None]).mT @ normals + DAMPING * width / reach * identity
        slope = ((weights * distances)[:, None] @ normals)[:, 0]
        faces, face_normals = within.faces_around(points)
        weights = _ignore_distant(faces, width)
        curvature = curvature + (face_normals.T * weights[:, None]) @ face_normals
        slope = slope + (weights * faces) @ face_normals
        violation = within.violation(points)
        is_outside = (violation != 0).to(points)
        curvature = curvature + (within.axes.T * is_outside[:, None]) @ within.axes
        # Without the check that makes a GPU wait: a damped matrix is never singular.
        points = points - torch.linalg.solve_ex(curvature, slope + violation @ within.axes).result
    return points


def _ignore_distant(distances: Tensor, width: float) -> Tensor:
    """Return the weights of least squares: one on an edge, and none far from it."""
    return (width**2 / (distances.square() + width**2)).square()


def _add_mixtures(starts: Points, most: int, generator: torch.Generator) -> Float[Tensor, "start free"]:
    """Add mixtures of two random starts until there are ``most``."""
    missing = most - len(starts)
    if missing <= 0:
        return starts
    pairs = torch.randint(len(starts), (2, missing), generator=generator).to(starts.device)
    shares = torch.rand(missing, 1, generator=generator, dtype=torch.float64).to(starts)
    return torch.cat([starts, torch.lerp(starts[pairs[0]], starts[pairs[1]], shares)])


def find_corners(
    within: InputRange, found: Points, count: int, generator: torch.Generator
) -> Float[Tensor, "corner free"]:
    """Return corners of the range that lie farthest along random directions.

    The directions are orthogonal to the differences between found points, where there are few enough of these.
    """
    count = min(count, within.most_programs)
    directions = torch.randn(count, within.axes.shape[1], generator=generator, dtype=torch.float64).to(within.axes)
    if 1 < len(found) <= within.axes.shape[1]:
        between = torch.linalg.qr((found[1:] - found[0]).T).Q
        directions = directions - directions @ between @ between.T
    return within.farthest(directions)


def _split(edges: Edges, points: Points) -> tuple[Float[Tensor, "_ free"], ...]:
    widest = max(len(weight) for weight in edges.weights)
    return torch.split(points, max(1, numbers_at_once(points.device) // (widest * edges.dimension)))
