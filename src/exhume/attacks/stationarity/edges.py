"""Points where the edges of many units meet: exact training inputs from the final weights alone.

The *edge* of a first-layer unit is the hyperplane ``w_k·x + b_k = 0`` where its ReLU switches. A ReLU network that
gradient flow has brought to rest keeps many training inputs exactly on edges: the derivative of a ReLU jumps there, and
inputs on both sides hold the unit in place. In ``n`` searched dimensions any ``n`` edges meet somewhere; a point on
many more edges is no coincidence. An approximate candidate shows which edges are close, and the point where these meet
is the input itself.
"""

import math
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhume.clues.search_space import SearchSpace
from exhume.core.suppression import suppress_neighbours
from exhume.models.structure import dense_stack
from exhume.records import AttackerView

Points = Float[Tensor, "point free"]

REACHES = (0.03, 0.1)
"""Distances within which edges attract a starting point, in units of the median distance of edges from the starts."""
ON_EDGE = 1e-3
"""Largest distance, in the same unit, of a point from an edge that it lies on."""
ROUNDS = 60
"""Rounds of re-weighted least squares per starting point."""
DAMPING = 0.03
"""Initial damping of the least squares; it shrinks with the reach."""
WEAK = 0.01
"""Units below this fraction of the largest contribution are ignored: unused units may have their edge anywhere."""
SAME_EDGE = 1e-5
"""Edges whose normals and offsets have a cosine above one minus this value are the same."""
UNITS_PER_DIMENSION = 10
"""Units per searched dimension below which the search is skipped: where they were fewer, meeting points were wrong."""
ABOVE_CHANCE = 1.5
"""Factor by which the edges through a point must outnumber those through any point found among shuffled edges."""
FIXED = 0.01
"""Least sum of squared cosines, over the edges of a point, with any direction for the point to be determined."""
SAME_POINT = 0.1
"""Points closer than this, in units of the median distance of edges, are the same."""
MOST_OPERATIONS = 2e12
"""Multiplications that the search may take, a few minutes of one CPU core; starting points beyond it are left out."""
NUMBERS_AT_ONCE = 2**24
"""Size of the largest intermediate tensor, in numbers; starting points are searched in parts of this size."""


@dataclass(frozen=True)
class Edges:
    """The hyperplanes where first-layer units switch, in coordinates of the searched space."""

    normals: Float[Tensor, "unit free"]
    """Vectors of unit length."""
    offsets: Float[Tensor, " unit"]

    @classmethod
    def of(cls, view: AttackerView, space: SearchSpace) -> "Edges | None":
        """Return the distinct edges of the units that contribute; None where there are none or too few."""
        stack = dense_stack(view.model)
        if stack is None or stack.activation != "relu" or stack.input_size != view.input_size:
            return None
        first, second = stack.layers[0], stack.layers[1]
        weight = view.final[first.weight].double()
        contribution = weight.norm(dim=1) * view.final[second.weight].double().norm(dim=0)
        used = contribution > WEAK * contribution.max()
        normals, offsets = weight[used], weight.new_zeros(int(used.sum()))
        if first.bias is not None:
            offsets = view.final[first.bias].double()[used] / first.weight_scale
        if space.basis is not None:
            inside = normals @ space.basis.to(normals)
            offsets = offsets if space.constant is None else offsets + inside[:, -1] * space.constant
            normals = inside[:, : space.dimension]
        lengths = normals.norm(dim=1)
        normals, offsets, lengths = (part[lengths > 0] for part in (normals, offsets, lengths))
        edges = cls(normals / lengths[:, None], offsets / lengths).without_duplicates()
        return edges if len(edges.offsets) > UNITS_PER_DIMENSION * space.dimension else None

    def without_duplicates(self) -> "Edges":
        """Return every edge once: units that learned the same weights share an edge, which would count twice."""
        both = torch.cat([self.normals, self.offsets[:, None]], 1)
        both = both / both.norm(dim=1, keepdim=True)
        is_repeated = (1 - (both @ both.T).abs() < SAME_EDGE).triu(1).any(0)
        return Edges(self.normals[~is_repeated], self.offsets[~is_repeated])

    def with_shuffled_offsets(self, generator: torch.Generator) -> "Edges":
        """Return edges with the same directions that meet only by chance."""
        order = torch.randperm(len(self.offsets), generator=generator).to(self.offsets.device)
        return replace(self, offsets=self.offsets[order])

    def signed_distances(self, points: Points) -> Float[Tensor, "point unit"]:
        """Return the signed distance of every point from every edge."""
        return points @ self.normals.T + self.offsets

    def median_distance(self, points: Points) -> float:
        """Return the median distance between the points and the edges, the unit of all tolerances here."""
        return float(self.signed_distances(points).abs().median())

    def count_through(self, points: Points, scale: float) -> Int[Tensor, " point"]:
        """Count the edges that each point lies on."""
        return (self.signed_distances(points).abs() < ON_EDGE * scale).sum(1)

    def are_determined(self, points: Points, scale: float) -> Bool[Tensor, " point"]:
        """Return whether the edges through each point fix it in every direction."""
        is_on = (self.signed_distances(points).abs() < ON_EDGE * scale).to(points)
        moments = torch.einsum("pu,ui,uj->pij", is_on, self.normals, self.normals)
        is_fixed: Tensor = torch.linalg.eigvalsh(moments)[:, 0] >= FIXED
        return is_fixed

    def move_to_meeting_points(self, starts: Points, reach: float) -> Points:
        """Move every starting point to where most of the edges around it meet.

        Uses iteratively re-weighted least squares with a loss that ignores distant edges (Geman and McClure 1985),
        while the reach shrinks from ``reach`` to a tenth of ``ON_EDGE``.
        """
        points, last = starts, 0.1 * ON_EDGE * self.median_distance(starts)
        identity = torch.eye(self.normals.shape[1], dtype=starts.dtype, device=starts.device)
        for round_number in range(ROUNDS):
            within = reach * (last / reach) ** (round_number / (ROUNDS - 1))
            distances = self.signed_distances(points)
            weights = (within**2 / (distances.square() + within**2)).square()
            curvature = torch.einsum("pu,ui,uj->pij", weights, self.normals, self.normals)
            curvature = curvature + DAMPING * within / reach * identity
            points = points - torch.linalg.solve(curvature, (weights * distances) @ self.normals)
        return points


@dataclass(frozen=True, kw_only=True)
class MeetingPoints:
    """Distinct points on more edges than chance explains, those on most edges first."""

    points: Points
    counts: Int[Tensor, " point"]
    """Number of edges through each point."""
    determined: Bool[Tensor, " point"]
    """Whether these edges fix the point in every direction. Points between two inputs lie on the edges both share."""
    starts: Int[Tensor, " point"]
    """Index of the starting point that led to each."""

    def take(self, chosen: Bool[Tensor, " point"]) -> "MeetingPoints":
        """Return the chosen points."""
        return MeetingPoints(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})


def find_meeting_points(edges: Edges, starts: Points, generator: torch.Generator) -> MeetingPoints:
    """Find points near the starts where more edges meet than the same search finds among shuffled edges.

    The most promising starts come first; those beyond ``MOST_OPERATIONS`` are left out.
    """
    operations = 2 * len(REACHES) * ROUNDS * len(edges.offsets) * starts.shape[1] ** 2
    starts = starts[: max(1, int(MOST_OPERATIONS / operations))]
    scale = edges.median_distance(starts)
    null = edges.with_shuffled_offsets(generator)
    by_chance = int(null.count_through(_search(null, starts, scale), scale).max())
    points = _search(edges, starts, scale)
    counts = edges.count_through(points, scale)
    least = math.ceil(ABOVE_CHANCE * max(by_chance, starts.shape[1]))
    order = counts.argsort(descending=True, stable=True)[: int((counts >= least).sum())]
    groups = suppress_neighbours(order, lambda one: (points - points[one]).norm(dim=1) <= SAME_POINT * scale)
    kept = torch.tensor([one for one, _ in groups], dtype=torch.long, device=starts.device)
    return MeetingPoints(
        points=points[kept],
        counts=counts[kept],
        determined=edges.are_determined(points[kept], scale),
        starts=kept % len(starts),
    )


def _search(edges: Edges, starts: Points, scale: float) -> Float[Tensor, "end free"]:
    """Return where every start leads, once per reach."""
    size = max(1, NUMBERS_AT_ONCE // (len(edges.offsets) * starts.shape[1]))
    parts = torch.split(starts, size)
    return torch.cat([edges.move_to_meeting_points(part, reach * scale) for reach in REACHES for part in parts])
