"""Remove mixtures: a row that is a sum of two rows has a constant ratio to one of them wherever the other is zero."""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.zeros import find_zeros, zero_width


def remove_mixtures(
    problem: RowProblem, rows: Float[Tensor, "row rank"], others: Float[Tensor, "other rank"]
) -> Float[Tensor, "row rank"]:
    """Subtract other rows from the rows that contain them.

    Where a mixture ``a·γ_1 + b·γ_2`` is nonzero and ``γ_1`` is zero, its ratio to ``γ_2`` is exactly ``b``: a value
    that many units share. The row of a single input has no such ratio to any other. Only the most similar rows are
    tried.
    """
    if len(rows) == 0 or len(others) == 0:
        return rows
    similarity = (rows @ others.T).abs()
    similarity[similarity > 1 - 1e-6] = 0  # a row is not subtracted from itself
    for other in similarity.topk(min(problem.search.nearest_rows, len(others)), dim=1).indices.T:
        rows = _subtract(problem, rows, others[other])
    return rows


def _subtract(problem: RowProblem, rows: Tensor, others: Tensor) -> Tensor:
    """Subtract from each row the multiple of its other row that leaves clearly more zeros, where there is one."""
    solid, least = problem.search.solid_entry, problem.search.shared_ratios
    entries, divisors = problem.normalise(rows), problem.normalise(others)
    noise = (3.0 * (problem.noise_width(rows) + problem.noise_width(others))).clamp(min=1e-6)[:, None]
    usable = (divisors.abs() > solid) & (entries.abs() > zero_width(problem, rows)) & problem.informative.bool()
    # Unusable units get ratios far from each other, so that no two of them agree.
    apart = 1e6 * (1 + torch.arange(entries.shape[1], device=rows.device))
    ratios = torch.where(usable, entries / torch.where(usable, divisors, torch.ones_like(divisors)), apart)
    ratios = ratios.sort(dim=1).values
    spans = ratios[:, least - 1 :] - ratios[:, : ratios.shape[1] - least + 1]
    at = spans.argmin(dim=1, keepdim=True)
    shared = ratios.gather(1, at + least // 2)
    tight = spans.gather(1, at) < 2.0 * noise / solid
    scale = (rows @ problem.rows).norm(dim=1, keepdim=True) / (others @ problem.rows).norm(dim=1, keepdim=True)
    candidate = rows - torch.where(tight, shared, torch.zeros_like(shared)) * scale * others
    candidate = candidate / candidate.norm(dim=1, keepdim=True).clamp(min=1e-30)
    zeros = find_zeros(problem, rows).sum(dim=1)
    gained = find_zeros(problem, candidate).sum(dim=1) - zeros
    # A part has more zeros than the mixture. Subtracting a mixture from one of its parts would leave the other part.
    is_part = find_zeros(problem, others).sum(dim=1) > zeros
    return torch.where((tight[:, 0] & is_part & (gained >= least // 2))[:, None], candidate, rows)
