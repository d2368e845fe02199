"""Search the spans of rows that share most of their zeros.

The rows of near-duplicates and all their mixtures share most zeros, so a search may end in any mixture. But mixtures
span the same space as the rows. Inside the span of ``g`` rows, ``g − 1`` units that an input left off determine its
row.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.silence import rank_silence
from exhume.attacks.gates.zeros import count_evidence, find_zeros

LIVE = 1e-2
"""Least part of a unit in the span of a group for the unit to say something about the group."""


def search_groups(
    problem: RowProblem,
    rows: Float[Tensor, "rank rank"],
    codes: Float[Tensor, "rank rank"],
    suspects: list[int],
    generator: torch.Generator,
) -> Float[Tensor, "candidate rank"]:
    """Propose rows inside the span of each suspect and the rows whose zeros are most like its own.

    Through random sets of units that the row's input left off. Pairs are the task of
    :mod:`exhume.attacks.gates.planes`.
    """
    rules, zeros = problem.search, find_zeros(problem, rows).to(rows)
    own = zeros.sum(dim=1, keepdim=True) - zeros @ zeros.T
    own = torch.minimum(own, own.T).fill_diagonal_(torch.inf)
    silence = rank_silence(problem, codes)
    found = [rows[:0]]
    for index in suspects:
        near = own[index].argsort()[: rules.largest_group - 1]
        near = near[own[index][near] < rules.linked_zeros * problem.units]
        for size in range(3, len(near) + 2):
            span, entries = _restrict(problem, torch.cat([rows[index : index + 1], rows[near[: size - 1]]]))
            units = ((entries.norm(dim=0) > 0) & silence[index].isfinite()).nonzero()[:, 0]
            if len(units) >= size:
                chosen = torch.randint(len(units), (rules.unit_sets, size - 1), generator=generator).to(units.device)
                normals = cross_product(entries.T[units[chosen]])
                found.append(_sparsest(problem, normals @ span.T))
    return torch.cat(found)


def cross_product(vectors: Float[Tensor, "set less dimension"]) -> Float[Tensor, "set dimension"]:
    """Return the vector that is orthogonal to one vector fewer than there are dimensions.

    Its entries are the determinants that a dimension leaves, with alternating signs.

    >>> cross_product(torch.tensor([[[0.0, 3.0, 0.0], [0.0, 0.0, 1.0]]])).abs()
    tensor([[1., 0., 0.]])
    """
    dimensions = range(vectors.shape[2])
    minors = [vectors[:, :, [other for other in dimensions if other != left]] for left in dimensions]
    normals = torch.stack([(-1) ** left * torch.linalg.det(minor) for left, minor in enumerate(minors)], dim=1)
    length: Tensor = normals.norm(dim=1, keepdim=True)
    return normals / length.clamp(min=1e-300)


def _restrict(problem: RowProblem, members: Tensor) -> tuple[Tensor, Tensor]:
    """Return an orthonormal basis of the members' span, and the units in it, scaled to norm one; zero if outside."""
    span = torch.linalg.qr(members.T).Q
    entries = span.T @ problem.directions
    length = entries.norm(dim=0)
    return span, torch.where(length > LIVE, entries / length.clamp(min=1e-300), torch.zeros_like(entries))


def _sparsest(problem: RowProblem, rows: Tensor, count: int = 3) -> Tensor:
    """Return the rows with the most zeros."""
    return rows[count_evidence(problem, rows).argsort(descending=True)[:count]]
