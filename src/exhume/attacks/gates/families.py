"""Take mixtures apart: find the sparsest rows in the space that a few rows span which may be mixed with each other.

Rows of near-duplicate inputs share most zeros, so a search of the whole row space may well end in a mixture of them. In
the space of a few rows, few units determine a row, so very many sets of units can be tried.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.rows import are_same
from exhume.attacks.gates.zeros import find_zeros
from exhume.core.devices import numbers_at_once


def rows_in_families(
    problem: RowProblem,
    rows: Float[Tensor, "row rank"],
    codes: Float[Tensor, "row rank"],
    parts: Bool[Tensor, "row row"],
    generator: torch.Generator,
) -> Float[Tensor, "candidate rank"]:
    """Propose the sparsest rows in the space of each row and its possible parts, of which those most like it are taken.

    Args:
        problem: what the rows are rows of.
        rows: the rows.
        codes: their inputs, in coordinates of the basis.
        parts: for each row which others may be mixed into it.
        generator: source of the sets of units.
    """
    zeros = find_zeros(problem, rows)
    before, after = (codes @ gate.T for gate in problem.gates)
    is_off = (before <= 0) & (after <= 0) & problem.informative.bool()
    related = (parts | parts.T).fill_diagonal_(True)
    shared = (zeros.to(rows) @ zeros.to(rows).T).masked_fill(~related, -1.0)
    families = {
        tuple(sorted(shared[row].topk(min(problem.search.group, int(related[row].sum()))).indices.tolist()))
        for row in (related.sum(dim=1) > 1).nonzero()[:, 0].tolist()
    }
    found = [rows[:0]]
    # Together they have as many entries as an intermediate result may have.
    sets = max(1, numbers_at_once(rows.device) // (problem.units * max(len(families), 1)))
    for family in sorted(families):
        chosen = list(family)
        # Units that all rows leave off say nothing, and those that all inputs turn on nothing either.
        units = (is_off[chosen].any(dim=0) & ~zeros[chosen].all(dim=0)).nonzero()[:, 0]
        if len(units) >= len(chosen):
            found.append(_sparsest(problem, rows[chosen], units, sets, generator))
    return torch.cat(found)


def _sparsest(problem: RowProblem, rows: Tensor, units: Tensor, sets: int, generator: torch.Generator) -> Tensor:
    """Return the rows in the span of some rows that are zero on most of the units."""
    basis: Tensor = torch.linalg.qr(rows.T).Q.T
    entries = basis @ problem.rows[:, units]
    directions = entries / entries.norm(dim=0).clamp(min=1e-300)
    count = len(basis)
    picks = torch.rand(sets, len(units), generator=generator).topk(count - 1).indices.to(units.device)
    # The last equation only fixes the size of a row.
    aim, ends = torch.ones(count).to(basis), torch.eye(count).to(basis)[:, -1:]
    columns = torch.cat([directions.T[picks], aim.expand(len(picks), 1, -1)], dim=1)
    normals = torch.linalg.solve_ex(columns, ends.expand(len(picks), -1, -1)).result[..., 0]
    normals = normals[normals.isfinite().all(dim=1)]
    normals = normals / normals.norm(dim=1, keepdim=True).clamp(min=1e-300)
    candidates = normals @ basis
    width = problem.deviations * problem.noise_width(candidates)
    width = width.clamp(min=problem.certificate.widest_zero) / problem.units**0.5
    size = (candidates @ problem.rows).norm(dim=1)
    score = ((normals @ entries).abs() <= (width * size)[:, None]).sum(dim=1)
    found = [candidates[:0]]
    for _ in range(count if len(candidates) else 0):
        best = candidates[int(score.argmax())][None]
        found.append(best)
        score = score.masked_fill(are_same(problem, candidates, best)[:, 0], -1)
    return torch.cat(found)
