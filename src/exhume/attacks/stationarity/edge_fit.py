"""What the edges through a point determine: how far the point may be off, and along which lines it could slide."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from pydantic import PositiveFloat
from scipy.optimize import Bounds, OptimizeResult, minimize
from torch import Tensor

from exhume.attacks.stationarity.edges import Points
from exhume.attacks.stationarity.meeting_points import ROOM, InputRange
from exhume.core.settings import settings

UNBOUNDED = 1e3
"""How far an input without a range is taken to move along a line."""


@settings
class EdgeRules:
    """What counts as a meeting of edges, and as determined."""

    width: PositiveFloat = 2e-3
    """Distance up to which a point lies on an edge, in units of the median distance. Trainings of some thousand
    steps leave inputs about that far from their edges."""
    band: PositiveFloat = 10.0
    """Ratio of the distances between which edges are counted to estimate how many chance brings within the width: from
    the width to this multiple, and from there to its square."""
    precision: PositiveFloat = 0.02
    """Largest error of a value, in units of the input; about five grey levels of 256."""


@dataclass(frozen=True)
class EdgeFit:
    """The least-squares fit of a point to its edges."""

    normals: Float[Tensor, "edge free"]
    noise: float
    """Standard deviation of the distances from the edges."""
    strengths: Float[Tensor, " free"]
    """Singular values of the normals: how well the edges determine each direction."""
    directions: Float[Tensor, "free free"]
    """Right singular vectors, one per row."""

    @property
    def reach(self) -> float:
        """Norm that the distances between the true input and all its edges are assumed not to exceed.

        It is that of the fitted point, and nothing is averaged out: a training that ends early leaves an input off its
        edges systematically.
        """
        return self.noise * math.sqrt(len(self.normals))

    @classmethod
    def of(cls, distances: Float[Tensor, " edge"], normals: Float[Tensor, "edge free"]) -> "EdgeFit":
        """Fit to edges with these signed distances from the point."""
        dimension = normals.shape[1]
        _, strengths, directions = torch.linalg.svd(normals, full_matrices=True)
        padded = strengths.new_zeros(dimension)
        padded[: len(strengths)] = strengths
        free = max(len(distances) - dimension, 1)
        noise = float((distances.square().sum() / free).sqrt())
        return cls(normals, max(noise, 1e-15), padded, directions)


def largest_error(
    fit: EdgeFit, within: InputRange, point: Float[Tensor, " free"], slack: float, precision: float
) -> float:
    """Bound the error of the values of a point: how far they can move while edges fit and the input stays in range.

    A true input may lie outside the searched space, and so outside its range, by ``slack``. The result is exact only up
    to ``precision``: a larger bound may be loose.
    """
    if slack > precision or not len(fit.normals):
        return math.inf
    return slack + _largest_move(fit, within, point, slack, precision - slack)


def _largest_move(
    fit: EdgeFit, within: InputRange, point: Float[Tensor, " free"], slack: float, precision: float
) -> float:
    """Bound how far values can move inside the searched space.

    The norm of the distances confines the point to an ellipsoid, and the range to a polytope. A value moves no further
    than any nonnegative weights of the range's constraints show (Lagrange duality), so no solver has to be trusted.
    """
    spread = fit.reach / fit.strengths.clamp(min=1e-300)
    axes = within.axes @ fit.directions.T
    bounds = (axes * spread).norm(dim=1)
    values = bounds.argsort(descending=True)
    doubtful = values[bounds[values] > precision]
    if not len(doubtful) or not within.is_finite or 2 * len(doubtful) > within.most_programs:
        return float(bounds[values[0]])
    inputs = within.inputs(point[None])[0]
    up, down = ((room + slack).clamp(min=0) for room in (within.highest - inputs, inputs - within.lowest))
    # Directions that no edge fixes are left to the range.
    farthest = torch.linalg.pinv(axes).abs() @ torch.maximum(up, down)
    loose = (spread > farthest).cpu().numpy()
    scaled = (axes * torch.minimum(spread, farthest)).cpu().numpy()
    constraints, room = np.concatenate([scaled, -scaled]), torch.cat([up, down]).cpu().numpy()
    worst = float(bounds[bounds <= precision].max()) if bool((bounds <= precision).any()) else 0.0
    for value in doubtful.tolist():
        for row in (value, value + len(axes)):
            worst = max(worst, _bound_by_duality(constraints[row], constraints, room, loose, row, precision))
            if worst > precision:
                return worst
    return worst


def _bound_by_duality(
    move: Float[np.ndarray, " free"],
    constraints: Float[np.ndarray, "constraint free"],
    room: Float[np.ndarray, " constraint"],
    loose: Bool[np.ndarray, " free"],
    own: int,
    enough: float,
) -> float:
    """Return an upper bound of ``move · z`` over all feasible ``z``; the search for a better one stops at ``enough``.

    Args:
        move: the direction.
        constraints: rows ``c`` of ``c · z ≤ room``.
        room: see ``constraints``.
        loose: coordinates that are at most 1 each; the others have at most norm 1 together.
        own: the constraint that is ``move`` itself.
        enough: a bound at which to stop.
    """

    def dual(weights: Float[np.ndarray, " constraint"]) -> tuple[float, Float[np.ndarray, " constraint"]]:
        left = move - weights @ constraints
        size = float(np.linalg.norm(left[~loose]))
        slope = np.where(loose, np.sign(left), left / max(size, 1e-300))
        return float(weights @ room + size + np.abs(left[loose]).sum()), room - constraints @ slope

    def stop_early(intermediate_result: OptimizeResult) -> None:
        if intermediate_result.fun <= enough:
            raise StopIteration

    none, above = np.zeros(len(room)), Bounds(0.0, np.inf)
    found = minimize(
        dual, none, jac=True, method="L-BFGS-B", bounds=above, callback=stop_early, options={"maxiter": 100}
    )
    return min(float(room[own]), dual(none)[0], dual(np.maximum(found.x, 0))[0])


def fewest_resisting(
    fit: EdgeFit, within: InputRange, points: Points, number: int, width: float, precision: float
) -> int:
    """Return how many edges resist along the direction where fewest do.

    An edge resists if it does not pass both a point and the end of the line through it, where the range stops the
    input: over twice the width, as two inputs may lie on either side of an edge. Directions towards the other points
    are tried too. A direction counts in which the input can move by more than the precision; where there is none, all
    edges resist.
    """
    point = points[number]
    others = torch.cat([points[:number], points[number + 1 :]]) - point
    directions = torch.cat([fit.directions, others / others.norm(dim=1, keepdim=True).clamp(min=1e-300)])
    directions = _sparsest(fit, directions)
    reach = _reach(within, point, directions)
    resisting = ((fit.normals @ directions.T).abs() * reach > 2 * width).sum(0)
    moves = (within.axes @ directions.T).abs().amax(0) * reach
    resisting = resisting[moves > precision]
    return int(resisting.min()) if len(resisting) else len(fit.normals)


def _sparsest(fit: EdgeFit, directions: Float[Tensor, "direction free"]) -> Float[Tensor, "more free"]:
    """Return the directions and those near them along which fewest edges resist, by re-weighted eigenvectors."""
    current = directions
    for width in np.geomspace(0.1, 1e-4, 12):
        weights = 1 / ((current @ fit.normals.T).square() + width**2)
        moments = (fit.normals.T * weights[:, None]) @ fit.normals
        current = torch.linalg.eigh(moments).eigenvectors[:, :, 0]
    return torch.cat([directions, current])


def _reach(
    within: InputRange, point: Float[Tensor, " free"], directions: Float[Tensor, "direction free"]
) -> Float[Tensor, " direction"]:
    """Return how far the input can move along each direction, either way, inside its range.

    Values may leave their range by :data:`ROOM`: along the line between two pictures with the same black pixels these
    do not move, but points and directions are not known better than that.
    """
    inputs = within.inputs(point[None])[0].clamp(within.lowest, within.highest)
    slopes = directions @ within.axes.T
    steepness = slopes.abs().clamp(min=1e-12)
    up = (torch.where(slopes > 0, within.highest - inputs, inputs - within.lowest) + ROOM) / steepness
    down = (torch.where(slopes > 0, inputs - within.lowest, within.highest - inputs) + ROOM) / steepness
    return torch.maximum(up.amin(1), down.amin(1)).clamp(max=UNBOUNDED)
