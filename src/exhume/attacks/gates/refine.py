"""Correct found rows by each other: replace rows by sparser ones nearby, and drop rows that spoil the others."""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.gates.check import check_rows
from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.rows import find_rows, sharpen
from exhume.attacks.gates.zeros import find_zeros, is_entangled


def refine_rows(
    problem: RowProblem, rows: Float[Tensor, "row rank"], generator: torch.Generator
) -> Float[Tensor, "row rank"]:
    """Replace rows by sparser ones close to them, found from the inputs that all rows together imply.

    Rows that share nearly all their zeros with another get more tries.
    """
    if len(rows) == 0:
        return rows
    rows = _replace_by_sparser(problem, rows, torch.arange(len(rows), device=rows.device), generator, tries=6)
    alike = is_entangled(problem, rows).nonzero()[:, 0]
    return _replace_by_sparser(problem, rows, alike, generator, tries=24) if len(alike) else rows


def _replace_by_sparser(
    problem: RowProblem, rows: Tensor, which: Tensor, generator: torch.Generator, tries: int
) -> Tensor:
    inputs = check_rows(problem, rows).inputs[which]
    proposals = sharpen(problem, find_rows(problem, inputs, generator, tries=tries))
    proposals = proposals.reshape(len(which), -1, problem.rank)
    cosines = (proposals @ rows.T).abs()
    to_own = cosines.gather(2, which[:, None, None].expand(-1, proposals.shape[1], 1))[..., 0]
    # Closest to the row it replaces, or a sparser near-duplicate would take its place.
    close = (to_own >= cosines.amax(dim=2)) & (to_own > problem.search.replacement_cosine)
    zeros = torch.stack([find_zeros(problem, each).sum(dim=1) for each in proposals.unbind(1)], dim=1) * close
    best = zeros.argmax(dim=1)
    at = torch.arange(len(which), device=rows.device)
    is_better = zeros[at, best] > find_zeros(problem, rows[which]).sum(dim=1)
    return rows.index_copy(0, which, torch.where(is_better[:, None], proposals[at, best], rows[which]))


def drop_spoilers(problem: RowProblem, rows: Float[Tensor, "row rank"], most: int) -> Float[Tensor, "kept rank"]:
    """Drop up to ``most`` rows without which the others agree better with their inputs.

    One wrong row spoils the inputs of others, and so does the direction it takes from the missing ones. Tried are the
    rows with the fewest zeros and those that agree least.
    """
    few = problem.search.suspects // 2
    for _ in range(min(most, len(rows) - 1)):
        checked = check_rows(problem, rows)
        if bool((checked.is_single & checked.is_exact).all()):
            break
        fewest = find_zeros(problem, rows).sum(dim=1).argsort()[:few]
        worst = checked.agreement.argsort()[:few]
        gains = {}
        for index in set(fewest.tolist()) | set(worst.tolist()):
            rest = torch.cat([rows[:index], rows[index + 1 :]])
            others = torch.cat([checked.agreement[:index], checked.agreement[index + 1 :]])
            gains[index] = float((check_rows(problem, rest).agreement - others).mean())
        spoiler = max(gains, key=lambda index: gains[index])
        if gains[spoiler] < problem.search.least_improvement:
            break
        rows = torch.cat([rows[:spoiler], rows[spoiler + 1 :]])
    return rows
