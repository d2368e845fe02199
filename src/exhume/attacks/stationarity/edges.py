"""Points where the edges of many units meet: training inputs, exactly, from the final weights alone.

A ReLU network that gradient flow has led to rest keeps many training inputs exactly on the edge of first-layer units,
where ``w_k·x + b_k = 0``: the derivative of a ReLU jumps there, and a unit is held in place by inputs on both sides.
With ``n`` searched dimensions ``n`` edges meet somewhere anyway; a point on many more of them is no accident. An
approximate candidate shows which edges those are, and where they meet is the input itself.
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

WIDTHS = (0.03, 0.1)
"""How far edges may be from a start to attract it, relative to the median distance of edges."""
MET = 1e-3
"""A point this close to an edge, on the same scale, lies on it."""
ROUNDS = 60
DAMPING = 0.03
FAINT = 0.01
"""Units that contribute less than this part of the strongest one are nobody's edge: they may have died anywhere."""
SAME = 1e-5
"""Edges whose normals and offsets differ by less are one."""
PLENTY = 10
"""Units a dimension, below which too few edges can meet to tell anything: what then met was no training input."""
CHANCE = 1.5
"""By which a count of edges must exceed the highest count of shuffled edges."""
FIXED = 0.01
"""The least sum of squared cosines between any direction and the edges of a point that fix it in that direction."""
APART = 0.1
"""Points closer than this, on the scale of edges, are one."""
WORK = 2e12
"""Multiplications that the search may take, a few minutes of one CPU core; starts beyond it are left out."""
SLICE = 2**24
"""Numbers that a slice of candidates may take at once."""


@dataclass(frozen=True)
class Edges:
    """Where first-layer units switch, as hyperplanes of the searched space."""

    normals: Float[Tensor, "unit free"]
    """Of unit length."""
    offsets: Float[Tensor, " unit"]

    @classmethod
    def of(cls, view: AttackerView, space: SearchSpace) -> "Edges | None":
        """Return the distinct edges of units that contribute; None where there are no edges, or too few."""
        stack = dense_stack(view.model)
        if stack is None or stack.activation != "relu" or stack.input_size != view.input_size:
            return None
        first, second = stack.layers[0], stack.layers[1]
        weight = view.final[first.weight].double()
        strength = weight.norm(dim=1) * view.final[second.weight].double().norm(dim=0)
        live = strength > FAINT * strength.max()
        normals, offsets = weight[live], weight.new_zeros(int(live.sum()))
        if first.bias is not None:
            offsets = view.final[first.bias].double()[live] / first.weight_scale
        if space.basis is not None:
            inside = normals @ space.basis.to(normals)
            offsets = offsets if space.constant is None else offsets + inside[:, -1] * space.constant
            normals = inside[:, : space.dimension]
        lengths = normals.norm(dim=1)
        normals, offsets, lengths = (part[lengths > 0] for part in (normals, offsets, lengths))
        edges = cls(normals / lengths[:, None], offsets / lengths).distinct()
        return edges if len(edges.offsets) > PLENTY * space.dimension else None

    def distinct(self) -> "Edges":
        """Return every edge once: units that learned the same share theirs, and would count twice."""
        both = torch.cat([self.normals, self.offsets[:, None]], 1)
        both = both / both.norm(dim=1, keepdim=True)
        alike = (1 - (both @ both.T).abs() < SAME).triu(1).any(0)
        return Edges(self.normals[~alike], self.offsets[~alike])

    def shuffled(self, generator: torch.Generator) -> "Edges":
        """Return edges of the same directions that meet nowhere on purpose."""
        order = torch.randperm(len(self.offsets), generator=generator).to(self.offsets.device)
        return replace(self, offsets=self.offsets[order])

    def heights(self, points: Points) -> Float[Tensor, "point unit"]:
        """Return the signed distance of every point from every edge."""
        return points @ self.normals.T + self.offsets

    def scale(self, points: Points) -> float:
        """Return how far edges usually are."""
        return float(self.heights(points).abs().median())

    def met(self, points: Points, scale: float) -> Int[Tensor, " point"]:
        """Count the edges that every point lies on."""
        return (self.heights(points).abs() < MET * scale).sum(1)

    def determine(self, points: Points, scale: float) -> Bool[Tensor, " point"]:
        """Tell which points the edges they lie on fix in every direction."""
        on = (self.heights(points).abs() < MET * scale).to(points)
        spread = torch.einsum("pu,ui,uj->pij", on, self.normals, self.normals)
        is_fixed: Tensor = torch.linalg.eigvalsh(spread)[:, 0] >= FIXED
        return is_fixed

    def meeting(self, starts: Points, width: float) -> Points:
        """Move every start to where most of the edges around it meet.

        Iteratively re-weighted least squares by a loss that forgets distant edges (Geman and McClure 1985), whose reach
        shrinks from ``width`` to what counts as met.
        """
        points, last = starts, 0.1 * MET * self.scale(starts)
        identity = torch.eye(self.normals.shape[1], dtype=starts.dtype, device=starts.device)
        for round_number in range(ROUNDS):
            reach = width * (last / width) ** (round_number / (ROUNDS - 1))
            heights = self.heights(points)
            weights = (reach**2 / (heights.square() + reach**2)).square()
            curvature = torch.einsum("pu,ui,uj->pij", weights, self.normals, self.normals)
            curvature = curvature + DAMPING * reach / width * identity
            points = points - torch.linalg.solve(curvature, (weights * heights) @ self.normals)
        return points


@dataclass(frozen=True, kw_only=True)
class Meetings:
    """Points on more edges than chance explains, the most first, each once."""

    points: Points
    counts: Int[Tensor, " point"]
    """How many edges meet there."""
    determined: Bool[Tensor, " point"]
    """Whether those edges leave no direction open. All points between two inputs lie on the edges the two share."""
    starts: Int[Tensor, " point"]
    """Which start led to each."""

    def take(self, chosen: Bool[Tensor, " point"]) -> "Meetings":
        """Return some of the points."""
        return Meetings(**{one.name: getattr(self, one.name)[chosen] for one in fields(self)})


def meetings(edges: Edges, starts: Points, generator: torch.Generator) -> Meetings:
    """Look where edges meet around the starts, and keep what the same search does not find among shuffled edges.

    The most promising starts come first: where there are more than can be followed, the others are left out.
    """
    each = 2 * len(WIDTHS) * ROUNDS * len(edges.offsets) * starts.shape[1] ** 2
    starts = starts[: max(1, int(WORK / each))]
    scale = edges.scale(starts)
    null = edges.shuffled(generator)
    chance = max(int(null.met(points, scale).max()) for points in _searched(null, starts, scale))
    points = torch.cat(_searched(edges, starts, scale))
    counts = edges.met(points, scale)
    least = math.ceil(CHANCE * max(chance, starts.shape[1]))
    order = counts.argsort(descending=True, stable=True)[: int((counts >= least).sum())]
    kept = [
        place
        for place, _ in suppress_neighbours(order, lambda place: (points - points[place]).norm(dim=1) <= APART * scale)
    ]
    found = points[kept]
    return Meetings(
        points=found,
        counts=counts[kept],
        determined=edges.determine(found, scale),
        starts=torch.tensor(kept, dtype=torch.long, device=starts.device) % len(starts),
    )


def _searched(edges: Edges, starts: Points, scale: float) -> list[Points]:
    size = max(1, SLICE // (len(edges.offsets) * starts.shape[1]))
    return [edges.meeting(part, width * scale) for width in WIDTHS for part in torch.split(starts, size)]
