"""Tell near-duplicate inputs apart: the exact rows inside a group whose rows are zero on nearly the same units.

The rows of near-duplicates and every mixture of them share most of their zeros, so a search ends in any of them. But
mixtures of a group's rows span what the rows themselves do. Inside this span of few dimensions rows are searched for
anew, and which of those found belong together is decided by the inputs that they imply *jointly*
(:mod:`exhume.attacks.gates.exchange`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from exhume.attacks.gates.check import check, missing_directions, nested, sharpen
from exhume.attacks.gates.exchange import evidence, exchanged, suits
from exhume.attacks.gates.search import RowProblem, SearchSettings, random_starts, rows_of, search
from exhume.core.suppression import suppress_neighbours

LARGEST_GROUP = 8
"""More rows than these are no group of near-duplicates."""
ALIKE = 0.05
"""Rows are linked where one has fewer zeros that the other has not than this fraction of the units."""
SILENT = 0.02
"""The size of entries, in units of their root mean square, up to which a unit says nothing about a group."""
STARTS = 128
"""How many candidates a strategy searches inside a group."""
SETS_OF_UNITS, BEST_SETS = 4_000, 100
"""How many sets of units are tried, and how many of their rows are looked at."""
SUSPECTS, PROPOSALS = 48, 4
"""For how many inputs rows are proposed, and how many proposals are kept for each row."""
FEW_MISSING = 8
"""With so few rows missing, their inputs are known well enough to be taken at their word."""
STARTS_FOR_MISSING = 64
"""From how many inputs in the span of the missing ones their rows are looked for."""
RIVAL_TRIES = 12
"""How often a row is looked for anew before its input counts as determined."""
REPEATED, INSIDE = 0.99995, 0.999
"""Proposals with a larger cosine are the same; rows with at least so large a part in a span belong to it."""
SHAKES = 4
"""How often the choice of a group's rows is started anew."""
INDEPENDENT = 1e-3
"""The least part of a row that the others before it do not span."""
PASSES, UNCHANGED = 10, 2
"""How often rows are proposed at most, and after how many passes without an exchange no more."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """What is known of a group of rows and stays the same however they are chosen inside their span."""

    span: Float[Tensor, "member rank"]
    """Orthonormal rows."""
    inputs: Float[Tensor, "value member"]
    """The inputs that belong to the rows of ``span``."""


def told_apart(
    problem: RowProblem,
    rows: Float[Tensor, "row rank"],
    strategies: Sequence[SearchSettings],
    generator: torch.Generator,
) -> Float[Tensor, "new rank"]:
    """Replace rows by those that agree best with the inputs that all of them imply together.

    In passes, each of which proposes rows for the inputs that the last one came to, and others inside the spans of
    groups. A few rows may be missing; with more, all stays as it is.
    """
    rows = _completed(problem, rows, generator)
    if len(rows) < problem.rank:
        return rows
    pool, idle = rows[:0], 0
    for _ in range(PASSES):
        checked = check(problem, rows)
        found = [rows_of(problem, checked.inputs[checked.agreement.argsort()[:SUSPECTS]], generator)]
        found += [_found_inside(problem, group, strategies, generator) for group in _groups(problem, rows)]
        pool = _best(problem, torch.cat([pool, _sharpened(problem, torch.cat(found))]))
        before, rows = rows, exchanged(problem, rows, pool)
        if torch.equal(before, rows):
            rows = _shaken(problem, rows, pool, generator)
        idle = idle + 1 if torch.equal(before, rows) else 0
        if idle == UNCHANGED:
            break
    return rows


def _shaken(problem: RowProblem, rows: Tensor, pool: Tensor, generator: torch.Generator) -> Tensor:
    """Choose the rows of each group anew from the pool, at random, and keep what comes of it if it is better."""
    for group in _groups(problem, rows):
        others = rows[(rows @ group.span.T).norm(dim=1) <= INSIDE]
        inside = pool[(pool @ group.span.T).norm(dim=1) > INSIDE]
        for _ in range(SHAKES):
            order = torch.randperm(len(inside), generator=generator).to(inside.device)
            trial = _independent(torch.cat([others, inside[order]]))
            if len(trial) == problem.rank:
                trial = exchanged(problem, trial, inside)
                rows = trial if suits(problem, trial) > suits(problem, rows) else rows
    return rows


def rivals(
    problem: RowProblem, rows: Float[Tensor, "row rank"], generator: torch.Generator
) -> Float[Tensor, "rival rank"]:
    """Find sparse rows for the inputs of rows anew, often: those rows themselves, and what might stand for them."""
    return _sharpened(problem, rows_of(problem, check(problem, rows).inputs, generator, tries=RIVAL_TRIES))


def _sharpened(problem: RowProblem, rows: Tensor) -> Tensor:
    return sharpen(problem, without_repeats(rows, REPEATED), steps=8)


def _completed(problem: RowProblem, rows: Tensor, generator: torch.Generator) -> Tensor:
    """Leave out rows that depend on others; where few are missing, add the best for inputs that only they can span."""
    rows = _independent(rows)
    if 0 < problem.rank - len(rows) <= FEW_MISSING:
        directions, strengths = missing_directions(problem, rows)
        starts = random_starts(problem, directions, strengths, STARTS_FOR_MISSING, generator)
        found = rows_of(problem, starts, generator)
        found = torch.cat([found, _sharpened(problem, found)])
        rows = _independent(torch.cat([rows, found[evidence(problem, found).argsort(descending=True)]]))
    return rows


def _independent(rows: Tensor) -> Tensor:
    """Leave out rows that those before them span."""
    kept, basis = [], rows[:0]
    for index, row in enumerate(rows):
        rest = row - (row @ basis.T) @ basis
        rest = rest - (rest @ basis.T) @ basis
        if len(basis) < rows.shape[1] and float(rest.norm()) > INDEPENDENT:
            kept.append(index)
            basis = torch.cat([basis, (rest / rest.norm())[None]])
    return rows[kept]


def _groups(problem: RowProblem, rows: Tensor) -> Iterator[Group]:
    """Find the groups: rows that are linked by sharing nearly all their zeros."""
    inputs = (problem.basis * problem.strengths) @ torch.linalg.inv(rows)
    pairs = nested(problem, rows, ALIKE).cpu().numpy()
    count, labels = connected_components(pairs, directed=False)
    for label in range(count):
        members = torch.as_tensor(labels == label, device=rows.device)
        if 1 < int(members.sum()) <= LARGEST_GROUP:
            span = torch.linalg.qr(rows[members].T).Q.T
            yield Group(span=span, inputs=inputs[:, members] @ (rows[members] @ span.T))


def _found_inside(
    problem: RowProblem, group: Group, strategies: Sequence[SearchSettings], generator: torch.Generator
) -> Tensor:
    """Search the span by expectation and maximisation, and by taking random sets of units for zero."""
    basis, strengths, _ = torch.linalg.svd(group.inputs, full_matrices=False)
    entries = group.span @ problem.rows
    # Units on which the whole group is zero say nothing about its rows, and much about where its inputs lie.
    live = entries.norm(dim=0) > SILENT * entries.norm() / problem.units**0.5
    inside = replace(problem, rows=entries * live, basis=basis, strengths=strengths, informative=live.to(entries))
    starts = random_starts(inside, basis, strengths, STARTS, generator)
    rows = [search(inside, starts, basis, strategy)[0] @ group.span for strategy in strategies]
    sets = torch.randint(int(live.sum()), (SETS_OF_UNITS, len(entries) - 1), generator=generator).to(live.device)
    normals = torch.linalg.svd(entries[:, live][:, sets].permute(1, 2, 0), full_matrices=True).Vh[:, -1]
    guessed = normals @ group.span
    return torch.cat([*rows, guessed[evidence(problem, guessed).argsort(descending=True)[:BEST_SETS]]])


def _best(problem: RowProblem, rows: Tensor) -> Tensor:
    """Keep the proposals with the most evidence, each once."""
    rows = rows[evidence(problem, rows).argsort(descending=True)]
    return without_repeats(rows, REPEATED)[: PROPOSALS * problem.rank]


def without_repeats(rows: Float[Tensor, "row rank"], cosine: float) -> Float[Tensor, "kept rank"]:
    """Keep the first of rows that are the same but for sign: those with a larger cosine."""
    same = ((rows @ rows.T).abs() > cosine).cpu()
    kept = [row for row, _ in suppress_neighbours(torch.arange(len(rows)), lambda row: same[row])]
    return rows[kept]
