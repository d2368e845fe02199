"""Rows of given inputs: orthogonal to most of the units that the input left off.

Every unit that an input never fired gives one linear equation for its row. Some units that seem off fired in
mid-training, so the equations are solved robustly: least squares, re-weighted so that large residuals lose their say.
Units are scaled to norm one, or those that moved far would outweigh the trusted ones, which moved little.
"""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhume.attacks.gates.halfspaces import weighted_gram
from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.silence import rank_silence
from exhume.attacks.gates.zeros import count_evidence, zero_width
from exhume.core.devices import numbers_at_once
from exhume.core.progress import Tick, no_tick
from exhume.core.suppression import suppress_neighbours


def rows_of_inputs(
    problem: RowProblem,
    codes: Float[Tensor, "candidate rank"],
    share: float | None,
    outside: Float[Tensor, "*each rank free"] | None = None,
    tick: Tick = no_tick,
) -> Float[Tensor, "candidate rank"]:
    """Find the row of each input from the units that it most certainly left off.

    Args:
        problem: what the rows are rows of.
        codes: the inputs in coordinates of the basis.
        share: the number of units, per dimension of the row space; None: all units that are off at both ends.
        outside: orthonormal directions outside the rows that are known already, for all inputs or for each. The size
            of a row is measured in them, so that a known row with nearly the same zeros is not found once more; None:
            no row is known.
        tick: called before each step of the fit to a part of the inputs; may raise to stop.
    """
    if len(codes) == 0:
        return codes
    score = rank_silence(problem, codes)
    most = int(score.isfinite().sum(dim=1).max()) if share is None else math.ceil(share * problem.rank)
    best, units = score.topk(min(max(most, problem.rank), score.shape[1]), dim=1)
    size = max(1, numbers_at_once(codes.device) // (units.shape[1] * problem.rank))
    chosen, valid = torch.split(units, size), torch.split(best.isfinite(), size)
    directions = [outside] * len(chosen) if outside is None or outside.ndim == 2 else torch.split(outside, size)
    every, rows = problem.directions.T, []
    for at, counts, where in zip(chosen, valid, directions, strict=True):
        rows.append(robust_normals(problem, every[at] * counts[..., None], at, where, tick=tick))
    return torch.cat(rows)


def rows_through_units(
    problem: RowProblem, codes: Float[Tensor, "candidate rank"], generator: torch.Generator
) -> Float[Tensor, "found rank"]:
    """Find a row of each input through random sets of units that it left off: the one that is zero on most of them.

    ``rank - 1`` units determine a row, exactly if none of them fired in mid-training. At a small rank, many sets cost
    little and some have no such unit, while a robust fit to all units may end elsewhere. Half of the sets take units in
    proportion to their scores (Gumbel noise on logarithms). Each half gives one row per input; an input that leaves too
    few units off has none. There are as many sets as an intermediate result has room for.
    """
    score, chosen = rank_silence(problem, codes), problem.rank - 1
    score = score[score.isfinite().sum(dim=1) >= chosen]
    numbers = max(len(score), 1) * (problem.rank**2 + problem.rows.shape[1])
    sets = numbers_at_once(codes.device) // (2 * numbers)
    if sets == 0 or chosen == 0:
        return codes[:0]
    found, every = [], torch.where(score.isfinite(), 0.0, -torch.inf)
    aim, ends = torch.ones(problem.rank).to(score), torch.eye(problem.rank).to(score)[:, -1:]
    for preference in (every, score):
        chance = torch.rand(sets, *score.shape, generator=generator, dtype=torch.float64).to(score)
        units = (preference - torch.log(-torch.log(chance.clamp(1e-12, 1 - 1e-12)))).topk(chosen).indices
        # The last equation only fixes the size of a row.
        columns = torch.cat([problem.directions.T[units], aim.expand(*units.shape[:2], 1, -1)], dim=2)
        rows = torch.linalg.solve_ex(columns, ends.expand(*units.shape[:2], -1, -1)).result[..., 0]
        rows = rows / rows.norm(dim=2, keepdim=True)
        rows = torch.where(rows.isfinite().all(dim=2, keepdim=True), rows, aim / aim.norm())
        width = problem.deviations * problem.noise_width(rows.flatten(0, 1)).reshape(rows.shape[:2])
        width = width.clamp(min=problem.certificate.widest_zero) / problem.units**0.5
        zeros = ((rows @ problem.rows).abs() <= width[..., None]) & score.isfinite()
        found.append(rows[zeros.sum(dim=2).argmax(dim=0), torch.arange(len(score), device=rows.device)])
    return torch.cat(found)


def complement(rows: Float[Tensor, "row rank"]) -> Float[Tensor, "rank free"]:
    """Return an orthonormal basis of what is orthogonal to all rows."""
    every: Tensor = torch.linalg.qr(rows.T, mode="complete").Q
    return every[:, len(rows) :]


def robust_normals(
    problem: RowProblem,
    columns: Float[Tensor, "candidate chosen dimension"],
    units: Int[Tensor, "candidate chosen"],
    outside: Float[Tensor, "*each dimension free"] | None = None,
    narrowest: float = 0.0,
    within: Float[Tensor, "candidate rank dimension"] | None = None,
    tick: Tick = no_tick,
) -> Float[Tensor, "candidate dimension"]:
    """Find the unit vectors that are orthogonal to as many of the columns as possible.

    A vector consists of a row and of other unknowns that the equations share with it, if there are any.

    Args:
        problem: what the rows are rows of.
        columns: one equation per chosen unit; the first dimensions are those of the row space.
        units: the chosen units.
        outside: orthonormal directions in which the size of a vector is measured; None: all.
        narrowest: the residuals beyond which a column loses its say fall to this size, or to the last of the rules.
        within: the directions of the row space that the dimensions are, orthonormal, for each; None: as above.
        tick: called before each step; may raise to stop.
    """
    tick()
    dimensions = columns.shape[2]
    alike = torch.full((len(units), dimensions), dimensions**-0.5).to(columns)
    vectors = towards_lowest(columns.mT @ columns, alike, 12, outside)
    lengths = problem.rows.norm(dim=0).clamp(min=1e-300)[units]
    for width in (width for width in problem.search.widths if width > narrowest):
        for _ in range(2):
            tick()
            rows = vectors[:, : problem.rank] if within is None else (within @ vectors[..., None])[..., 0]
            noise = problem.noise * (rows / problem.strengths).norm(dim=1, keepdim=True) / lengths
            residuals = (columns @ vectors[..., None])[..., 0]
            weighted = columns * (1 / (residuals.square() + noise.square() + width**2))[..., None]
            vectors = towards_lowest(weighted.mT @ columns, vectors, 2, outside)
    return vectors


def towards_lowest(
    grams: Float[Tensor, "row rank rank"],
    rows: Float[Tensor, "row rank"],
    iterations: int,
    outside: Float[Tensor, "*each rank free"] | None = None,
) -> Float[Tensor, "row rank"]:
    """Move rows towards the eigenvectors of the lowest eigenvalues, by inverse iterations.

    With directions ``outside``, the eigenvalues are relative to the size of a row in these.
    """
    grams = grams / grams.diagonal(dim1=1, dim2=2).mean(dim=1)[:, None, None].clamp(min=1e-300)
    factor = torch.linalg.cholesky_ex(grams + 1e-13 * torch.eye(grams.shape[1]).to(grams)).L
    for _ in range(iterations):
        new = torch.cholesky_solve(_project(rows, outside)[..., None], factor)[..., 0]
        new = new / new.norm(dim=1, keepdim=True)
        rows = torch.where(new.isfinite().all(dim=1, keepdim=True), new, rows)  # a singular matrix changes nothing
    return rows


def _project(
    rows: Float[Tensor, "row rank"], directions: Float[Tensor, "*each rank free"] | None
) -> Float[Tensor, "row rank"]:
    """Project rows onto orthonormal directions, for all rows or for each; None: all directions."""
    if directions is None or directions.shape[-1] == rows.shape[1]:
        return rows
    if directions.ndim == 2:
        return rows @ directions @ directions.T
    return (directions @ (directions.mT @ rows[..., None]))[..., 0]


def polish(
    problem: RowProblem, rows: Float[Tensor, "row rank"], rounds: int = 2, tick: Tick = no_tick
) -> Float[Tensor, "row rank"]:
    """Bring rows to the precision of the weights: least squares over their own zeros, re-weighted by their size.

    With equal weights, zeros that are only nearly zero spoil rows that are known better: after AdamW, 8 of 32.
    ``tick`` is called between steps; it may raise to stop.
    """
    for _ in range(rounds if len(rows) else 0):
        size = problem.normalise(rows).abs()
        zeros = problem.informative * (size <= 2 * zero_width(problem, rows))
        weights = zeros / (size + problem.noise_width(rows)[:, None]).square()
        rows = towards_lowest(weighted_gram(problem.rows, weights, tick), rows, iterations=4)
    return rows


def sharpen(problem: RowProblem, rows: Float[Tensor, "row rank"], tick: Tick = no_tick) -> Float[Tensor, "row rank"]:
    """Move rows to the sparsest vector nearby, where that has more zeros.

    Least squares over all units, re-weighted so that only small entries have a say. In a search for 40 faces after
    AdamW, 59 of 68 rows with a cosine of 0.999 to 0.9999 with a true row become exact.
    ``tick`` is called between steps; it may raise to stop.
    """
    sharp, lengths = rows, problem.rows.norm(dim=0).clamp(min=1e-300)
    for width in problem.search.widths if len(rows) else ():
        if width > problem.certificate.precision:  # these rows are nearly right
            continue
        noise = problem.noise * (sharp / problem.strengths).norm(dim=1, keepdim=True) / lengths
        weights = problem.informative / ((sharp @ problem.directions).square() + noise.square() + width**2)
        sharp = towards_lowest(weighted_gram(problem.directions, weights, tick), sharp, iterations=2)
    is_better = count_evidence(problem, sharp) > count_evidence(problem, rows)
    return torch.where(is_better[:, None], sharp, rows)


def are_same(
    problem: RowProblem,
    rows: Float[Tensor, "row rank"],
    others: Float[Tensor, "other rank"],
    width: float | None = None,
) -> Bool[Tensor, "row other"]:
    """Return which rows are the same up to sign: those whose entries differ by ``width`` or noise, in the mean square.

    For rows of length 1 whose entries differ by ``w`` root mean squares, ``1 − cosine`` is ``w²/2``. Noise moves each
    of two copies by about one standard deviation. ``width`` is by default that of a zero, for polished rows. With a
    hundred times as much, a mixture with 2 % of two nearly parallel rows hides the true row of one of the demo's faces.
    """
    least = problem.certificate.widest_zero if width is None else width
    noise = problem.noise_width(rows)[:, None] + problem.noise_width(others)
    same: Tensor = (rows @ others.T).abs() > 1 - noise.clamp(min=least).square() / 2
    return same


def drop_repeats(
    problem: RowProblem, rows: Float[Tensor, "row rank"], width: float | None = None
) -> Float[Tensor, "kept rank"]:
    """Keep the first of rows that are the same (:func:`are_same`)."""
    same = are_same(problem, rows, rows, width).cpu()
    kept = [row for row, _ in suppress_neighbours(torch.arange(len(rows)), lambda row: same[row])]
    return rows[kept]
