"""A pool of candidate rows, and the basis of the row space that they make.

A true row has more zeros than the mixtures that contain it. So the true rows are a basis of maximal weight, where the
weight of a row is its number of zeros beyond chance, and a greedy choice finds it (a matroid).
"""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.gates.backprop import explained_share
from exhume.attacks.gates.fit import count_contradictions, fit_codes
from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.rows import are_same, drop_repeats, polish, sharpen
from exhume.attacks.gates.significance import log_p_zeros
from exhume.attacks.gates.zeros import count_evidence, find_zeros
from exhume.core.progress import Tick, no_tick

FURTHER_STEPS = 6
"""Number of steps by which rows are polished further. In the demo's faces, they add 12 zeros to a row that
contained 0.3 % of two others, which completes its 458."""


def add_to_pool(
    problem: RowProblem,
    pool: Float[Tensor, "row rank"],
    weights: Float[Tensor, " row"],
    rows: Float[Tensor, "new rank"],
    limit: float,
    tick: Tick = no_tick,
) -> tuple[Float[Tensor, "merged rank"], Float[Tensor, " merged"]]:
    """Add rows that chance does not explain and whose zeros some input explains; return the pool, the best first.

    ``tick`` is called between steps; it may raise to stop.
    """
    rules = problem.search
    rows = rows[rows.isfinite().all(dim=1)]
    if len(rows):
        rows = polish(problem, sharpen(problem, rows, tick) if problem.is_local else rows, tick=tick)
        # Further steps bring some rows home and lead others away, towards a mixture with a similar row.
        further = polish(problem, rows, FURTHER_STEPS, tick)
        has_more = count_evidence(problem, further) > count_evidence(problem, rows)
        rows = torch.cat([rows, further[has_more]])
        rows = rows[log_p_zeros(problem, rows).to(rows.device) < limit]
        rows = rows[~are_same(problem, rows, pool).any(dim=1)]
        rows = drop_repeats(problem, rows[count_evidence(problem, rows).argsort(descending=True)])
    if len(rows):
        codes = fit_codes(problem, rows, tick=tick)
        against = count_contradictions(problem, rows, codes)
        is_explained = against <= rules.largest_contradiction * find_zeros(problem, rows).sum(dim=1)
        share = explained_share(problem, rows, codes) if problem.is_local else torch.ones_like(against)
        least = rules.least_explained if problem.readout is None else rules.least_explained_exactly
        is_explained &= share >= least * share.max()
        new = ((count_evidence(problem, rows) - against) * share)[is_explained]
        pool, weights = torch.cat([pool, rows[is_explained]]), torch.cat([weights, new])
    order = weights.argsort(descending=True, stable=True)
    pool, weights = pool[order], weights[order]
    same = torch.tril(are_same(problem, pool, pool), -1).any(dim=1)
    pool, weights = pool[~same], weights[~same]
    kept = torch.arange(len(pool), device=pool.device) < rules.group * problem.rank
    basis = _independent(problem, pool)
    kept[basis] = True
    # A search of many rows also ends in vectors with few more zeros than can be forced; true rows have about as many
    # as each other.
    beyond = count_evidence(problem, pool) - (problem.rank - 1)
    kept &= beyond >= rules.few * (beyond[basis].median() if basis else 0)
    return pool[kept], weights[kept]


def heaviest_basis(problem: RowProblem, rows: Float[Tensor, "row rank"]) -> Float[Tensor, "kept rank"]:
    """Choose independent rows; ``rows`` has the heaviest first."""
    return rows[_independent(problem, rows)]


def _independent(problem: RowProblem, rows: Tensor) -> list[int]:
    """Return which rows are not spanned by rows before them."""
    kept: list[int] = []
    basis, rest = rows[:0], rows.clone()
    least = (problem.certificate.clean * problem.noise_width(rows)).clamp(min=problem.search.independence).tolist()
    for index in range(len(rows)):
        if len(kept) == rows.shape[1]:
            break
        if float(rest[index].norm()) > least[index]:
            direction = rest[index] - (rest[index] @ basis.T) @ basis
            direction = direction / direction.norm()
            basis = torch.cat([basis, direction[None]])
            rest = rest - (rest @ direction)[:, None] * direction
            kept.append(index)
    return kept
