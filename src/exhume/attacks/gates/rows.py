"""Rows of given inputs: zero on most units that the input leaves off, and sharpened to the noise floor."""

from itertools import cycle, islice, product

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.gates.halfspaces import weighted_gram
from exhume.attacks.gates.problem import RowProblem
from exhume.core.suppression import suppress_neighbours


def minimise_weighted_norm(
    problem: RowProblem,
    rows: Float[Tensor, "candidate rank"],
    weights: Float[Tensor, "candidate unit"],
    iterations: int,
) -> Float[Tensor, "candidate rank"]:
    """Move rows towards the unit row with the smallest weighted sum of squares, by inverse iterations."""
    gram = weighted_gram(problem.rows, weights)
    scale = gram.diagonal(dim1=1, dim2=2).mean(dim=1)[:, None, None].clamp(min=1e-30)
    gram = gram + 1e-11 * scale * torch.eye(problem.rank, dtype=gram.dtype, device=gram.device)
    factor = torch.linalg.cholesky(gram / scale)
    for _ in range(iterations):
        rows = torch.cholesky_solve(rows[..., None], factor)[..., 0]
        rows = rows / rows.norm(dim=1, keepdim=True)
    return rows


def sharpen(problem: RowProblem, rows: Float[Tensor, "row rank"], steps: int = 14) -> Float[Tensor, "row rank"]:
    """Bring rows to the precision of the weights: entries that are zero up to noise become as small as the noise.

    Least squares, re-weighted as for a count of nonzeros, with a width that falls to the noise floor.
    """
    for step in range(steps):
        width = (2.0 * problem.noise_width(rows)).clamp(min=1e-2 * 0.5**step, max=1.0)[:, None]
        normalised = problem.normalise(rows)
        weights = problem.informative / (normalised.pow(2) + width.pow(2))
        rows = minimise_weighted_norm(problem, rows, weights, 2)
    return rows


def find_rows(
    problem: RowProblem,
    inputs: Float[Tensor, "candidate value"],
    generator: torch.Generator,
    tries: int = 6,
    lowest: int = 8,
    steps: int = 16,
) -> Float[Tensor, "candidate_try rank"]:
    """Find rows that are zero on most units that the given inputs leave off before and after training.

    Units that fired in mid-training are outliers, and rarer the further a unit is from firing. Many rows of similar
    inputs are small on the same units. So several tries per candidate start in the span of the ``lowest`` eigenvectors,
    and each converges to a row with many exact zeros, as by a count of nonzeros whose width falls to almost nothing.
    """
    rules = problem.search
    before, after = (inputs @ problem.gate_weights.T).chunk(2, dim=1)
    margins = torch.maximum(before, after)
    depth = (margins.abs() / margins.abs().mean(dim=1, keepdim=True).clamp(min=1e-30)).clamp(max=rules.largest_depth)
    off = (margins < 0) * problem.informative
    on = problem.informative - off
    factor = torch.linalg.cholesky(weighted_gram(problem.rows, on + 1e-3 * problem.informative))
    low = torch.linalg.eigh(_congruent(factor, weighted_gram(problem.rows, off * depth))).eigenvectors
    low = torch.linalg.solve_triangular(factor.mT, low[:, :, : min(lowest, problem.rank)], upper=True)
    mix = torch.randn(len(inputs), tries, low.shape[2], generator=generator, dtype=torch.float64).to(low)
    rows: Tensor = (mix @ low.mT).reshape(-1, problem.rank)
    first, power = (
        torch.tensor(values, dtype=rows.dtype, device=rows.device).repeat(len(inputs), 1).reshape(-1, 1)
        for values in zip(*islice(cycle(product(rules.first_widths, rules.depth_powers)), tries), strict=True)
    )
    off = off.repeat_interleave(tries, dim=0) * depth.repeat_interleave(tries, dim=0) ** power
    large = weighted_gram(problem.rows, on).repeat_interleave(tries, dim=0)
    for step in range(steps):
        width = first * (rules.last_width / first) ** (step / (steps - 1))
        small = weighted_gram(problem.rows, off / (problem.normalise(rows).pow(2) + width.pow(2)))
        factor = torch.linalg.cholesky(small + 1e-9 * large)
        for _ in range(2):
            rows = torch.cholesky_solve(large @ rows[..., None], factor)[..., 0]
            rows = rows / rows.norm(dim=1, keepdim=True)
    return rows


def drop_repeats(rows: Float[Tensor, "row rank"], cosine: float) -> Float[Tensor, "kept rank"]:
    """Keep the first of rows that are the same up to sign: those whose cosine is larger."""
    same = ((rows @ rows.T).abs() > cosine).cpu()
    kept = [row for row, _ in suppress_neighbours(torch.arange(len(rows)), lambda row: same[row])]
    return rows[kept]


def _congruent(factor: Tensor, matrix: Tensor) -> Tensor:
    """Return ``F⁻¹ A F⁻ᵀ``."""
    half = torch.linalg.solve_triangular(factor, matrix, upper=False)
    whole: Tensor = torch.linalg.solve_triangular(factor, half.mT, upper=False)
    return whole
