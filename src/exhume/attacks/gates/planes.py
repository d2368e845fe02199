"""Take mixtures apart: find the sparsest rows in the planes that pairs of rows span.

In the plane of rows ``a`` and ``b``, every unit is zero for one direction: the ratio of its two entries. The units that
a true row leaves off share one ratio, whatever mixtures ``a`` and ``b`` are of it and one other row. Rows of
near-duplicate inputs share most zeros, so a search may well end in a mixture of them.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.zeros import find_zeros

LIVE = 0.05
"""Least size of a unit's two entries, in root mean squares of the rows, for its ratio to be known."""
PAIRS_AT_ONCE = 2**23
"""Largest number of ratios at once."""


def scan_planes(
    problem: RowProblem, rows: Float[Tensor, "row rank"], peaks: int = 3
) -> Float[Tensor, "candidate rank"]:
    """Propose the rows on which most units agree in the planes of each row and those that share most of its zeros."""
    if len(rows) < 2:
        return rows[:0]
    zeros = find_zeros(problem, rows).to(rows)
    shared = (zeros @ zeros.T).fill_diagonal_(-1)
    near = shared.topk(min(problem.search.partners, len(rows) - 1), dim=1).indices
    first = torch.arange(len(rows), device=rows.device)[:, None].expand_as(near)
    pairs = torch.stack([torch.minimum(first, near), torch.maximum(first, near)], dim=2).reshape(-1, 2)
    pairs = torch.unique(pairs, dim=0)
    size = max(1, PAIRS_AT_ONCE // problem.rows.shape[1])
    return torch.cat([_scan(problem, rows, part, peaks) for part in torch.split(pairs, size)])


def _scan(problem: RowProblem, rows: Tensor, pairs: Tensor, peaks: int) -> Tensor:
    entries, noise = problem.normalise(rows), problem.noise_width(rows)
    scale = rows.norm(dim=1) / (rows @ problem.rows).norm(dim=1)  # from normalised rows back to unit vectors
    rows = rows * (scale / rows.norm(dim=1) * math.sqrt(problem.units))[:, None]
    one, two = entries[pairs[:, 0]], entries[pairs[:, 1]]
    length = torch.hypot(one, two)
    width = problem.certificate.zero_width * torch.maximum(noise[pairs[:, 0]], noise[pairs[:, 1]])[:, None]
    is_live = (length > torch.maximum(width * 4, torch.full_like(width, LIVE))) & problem.informative.bool()
    # The row that is zero on a unit is cos·a + sin·b; angles of units without a ratio lie far apart.
    apart = 10.0 + torch.arange(one.shape[1], device=one.device, dtype=one.dtype)
    angles = torch.where(is_live, torch.remainder(torch.atan2(-one, two), math.pi), apart)
    angles, order = angles.sort(dim=1)
    tolerance = (width.clamp(min=problem.certificate.widest_zero) / length).gather(1, order).clamp(max=0.3)
    low = torch.searchsorted(angles, angles - tolerance)
    high = torch.searchsorted(angles, angles + tolerance, right=True)
    counts = torch.where(angles < 4, high - low, torch.zeros_like(low)).to(one)
    zeros = find_zeros(problem, rows).to(one)
    own = zeros.sum(dim=1)
    common = (zeros[pairs[:, 0]] * zeros[pairs[:, 1]]).sum(dim=1)
    least = torch.minimum(own[pairs[:, 0]], own[pairs[:, 1]]) - common
    # The rows themselves are no news.
    trivial = torch.minimum((angles - math.pi / 2).abs(), torch.minimum(angles, (angles - math.pi).abs()))
    counts = counts.masked_fill(trivial < 2 * tolerance, 0)
    found = []
    for _ in range(peaks):
        best, at = counts.max(dim=1)
        angle = angles.gather(1, at[:, None])[:, 0]
        is_new = (best >= 4) & (best >= least)
        row = torch.cos(angle)[:, None] * rows[pairs[:, 0]] + torch.sin(angle)[:, None] * rows[pairs[:, 1]]
        found.append((row / row.norm(dim=1, keepdim=True).clamp(min=1e-300))[is_new])
        counts = counts.masked_fill((angles - angle[:, None]).abs() < 4 * tolerance.gather(1, at[:, None]), 0)
    return torch.cat(found)
