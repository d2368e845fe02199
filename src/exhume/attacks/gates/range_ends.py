"""Inputs at the ends of their range: the background of an image is black, exactly.

Every value that lies at an end of the range is an equation for the input, as every zero of a row is one for the row. An
input with more such values than the span of all inputs has dimensions is determined by them, whatever its gates do. So
an input that is nearly right is moved to where most of its values are at an end.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.gates.halfspaces import weighted_gram
from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.rows import towards_lowest
from exhume.clues.subspace import split_off
from exhume.core.least_squares import solve_least_squares
from exhume.core.progress import Tick, no_tick

SHARE = 0.2
"""Share of the values, those nearest to an end, that have most of the say at first. With 0.1, 0.2 and 0.3, of 100 MNIST
images 32, 47 and 40 are found from the same inputs (250 steps of a weight-difference attack on AdamW's state)."""
FIT_STEPS, NARROWING = 24, 0.7
"""Number of steps of a robust fit, and the factor by which its width falls in each; numerically converged."""
NEAR = 0.03
"""Distance from an end of the range, as a fraction of it, up to which values may be there after the robust fit. Faint
values among them are outliers of a last fit, which minimises the sum of distances."""
TRIED_FIRST = 16
"""Number of inputs that are tried first; where none of them comes to have many values at an end, the others do not
either."""
SAME = 1 - 1e-5
"""Cosine above which inputs are the same after the robust fit."""
AT_END = 1e-4
"""Distance up to which values count as being at an end of the range."""


def touch_range(
    problem: RowProblem,
    codes: Float[Tensor, "candidate rank"],
    known: Float[Tensor, "row rank"],
    tick: Tick = no_tick,
) -> Float[Tensor, "moved rank"]:
    """Move inputs, in coordinates of the basis, to where most of their values lie at an end of their range.

    Robust least squares, as for rows (:mod:`exhume.attacks.gates.rows`), in the directions that inputs of missing rows
    span. The size of an input is measured by all of its distances from both ends: these are then orthonormal, or a
    combination whose values are all small would be nearest. Inputs that end in the same place, or where too few values
    are at an end, are left out.

    Args:
        problem: what the inputs trained; its ``ends`` must be known.
        codes: the inputs.
        known: the rows of other inputs.
        tick: called between steps; may raise to stop.
    """
    assert problem.ends is not None
    left = split_off(problem.strengths, known)[0]
    if left.shape[1] == 0:
        return codes[:0]
    ends = problem.ends @ left
    size = ends.norm(dim=1)
    is_told = size > 1e-3 * size.max()  # values that are the same in all inputs say nothing
    ends = ends[is_told]
    directions, sizes, turned = torch.linalg.svd(ends, full_matrices=False)
    distances = directions.T.contiguous()
    constant = (problem.basis[-1] @ left) @ turned.T / sizes
    points = torch.nn.functional.normalize((codes @ left) @ turned.T * sizes)
    found = _keep_determined(_fit_roughly(points[:TRIED_FIRST], distances, tick), distances, constant)
    if len(found) == 0:  # as for photographs, which have few values at an end
        return codes[:0]
    rest = _keep_determined(_fit_roughly(points[TRIED_FIRST:], distances, tick), distances, constant)
    points = torch.cat([found, rest])
    cosines = torch.nn.functional.normalize(points) @ torch.nn.functional.normalize(points).T
    points = points[~torch.tril(cosines > SAME, -1).any(dim=1)]
    is_low = (torch.arange(len(problem.ends), device=ends.device) < len(problem.ends) // 2)[is_told]
    # Many values may lie one level below the upper end, and a trace of another input lifts them all to it. So the ends
    # are fitted together and each alone, and the input with most values at an end is right.
    shares = (is_low, ~is_low, torch.ones_like(is_low))
    fits = torch.stack([_fit_exactly(points, distances[:, share], constant, tick) for share in shares])
    counts = ((fits @ distances).abs() < AT_END).sum(dim=2)
    points = fits[counts.argmax(dim=0), torch.arange(len(points), device=points.device)]
    moved: Tensor = (points / sizes) @ turned @ left.T
    return moved


def _fit_roughly(
    points: Float[Tensor, "candidate free"], distances: Float[Tensor, "free bound"], tick: Tick
) -> Float[Tensor, "candidate free"]:
    """Move points to where many distances vanish, by least squares that lets large ones lose their say."""
    for step in range(FIT_STEPS if len(points) else 0):
        off = (points @ distances).abs()
        width = off.quantile(SHARE, dim=1, keepdim=True) * NARROWING ** max(step - 3, 0)
        weights = 1 / (off.square() + width.square() + 1e-16)
        points = towards_lowest(weighted_gram(distances, weights, tick), points, 1)
    return points


def _keep_determined(
    points: Float[Tensor, "candidate free"], distances: Float[Tensor, "free bound"], constant: Float[Tensor, " free"]
) -> Float[Tensor, "kept free"]:
    """Scale inputs to a constant of 1, and keep those with more values near an end than can be forced."""
    points = points / (points @ constant)[:, None]
    near = ((points @ distances).abs() < NEAR).sum(dim=1)
    return points[(near > len(constant)) & points.isfinite().all(dim=1)]


def _fit_exactly(
    points: Float[Tensor, "candidate free"],
    distances: Float[Tensor, "free bound"],
    constant: Float[Tensor, " free"],
    tick: Tick,
) -> Float[Tensor, "candidate free"]:
    """Minimise the sum of small distances, for inputs with a constant of 1."""
    off = (points @ distances).abs()
    is_near, identity = (off < NEAR).to(off), torch.eye(len(constant)).to(off)
    for step in range(FIT_STEPS // 2 if len(points) else 0):
        gram = weighted_gram(distances, is_near / (off + NEAR * NARROWING ** (4 * step)), tick)
        largest = gram.diagonal(dim1=1, dim2=2).amax(dim=1)
        gram = gram + 1e-14 * largest[:, None, None] * identity
        points = torch.linalg.solve_ex(gram, constant.expand_as(points)[..., None]).result[..., 0]
        points = points / (points @ constant)[:, None]
        off = (points @ distances).abs()
    return points


def values_of(problem: RowProblem, codes: Float[Tensor, "candidate rank"]) -> Float[Tensor, "candidate value"]:
    """Return the values of inputs as fractions of their range; ``ends`` must be known."""
    assert problem.ends is not None
    above = codes @ problem.ends[: len(problem.ends) // 2].T
    constants = (codes @ problem.basis[-1])[:, None]
    return above / torch.where(constants.abs() < 1e-300, 1e-300, constants)


def codes_of(problem: RowProblem, values: Float[Tensor, "candidate value"]) -> Float[Tensor, "candidate rank"]:
    """Return the coordinates of inputs with these values, as fractions of their range; see :func:`values_of`."""
    assert problem.ends is not None
    lower = torch.cat([problem.ends[: values.shape[1]], problem.basis[-1:]])
    wanted = torch.cat([values, torch.ones_like(values[:, :1])], dim=1)
    return solve_least_squares(lower, wanted.T.to(lower)).T
