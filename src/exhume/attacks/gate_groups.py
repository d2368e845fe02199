"""Tell near-duplicate inputs apart: the exact rows inside a group whose rows are zero on nearly the same units.

The rows of near-duplicates and every mixture of them share most of their zeros, so a search ends in any of them. What
they span is found exactly all the same: it is the space of rows that vanish on all units that are far from firing on
any of them. Inside this span of few dimensions rows are searched for anew, and which of those found belong together is
decided by the inputs that they imply *jointly*: the right choice is the one whose inputs foretell the zeros of all its
rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhume.attacks.gate_check import check, entangled, nested, sharpen, shows_zero, zero_width
from exhume.attacks.gate_search import RowProblem, SearchSettings, random_starts, rows_of, search

LARGEST_GROUP = 8
"""More rows than these are no group of near-duplicates."""
DEPTHS = (0.5, 0.35, 0.7)
"""Which part of the units that an input leaves off counts as far from firing; the first with a clear gap is taken."""
VANISHES, STANDS_OUT = 0.01, 0.05
"""How small rows of a group are on such units, in units of their root mean square, and how large the next row is."""
ALIKE = 0.025
"""Rows with fewer zeros of their own than this fraction of the units may be mixtures of a group's rows."""
SILENT = 0.02
"""The size of entries, in units of their root mean square, up to which a unit says nothing about a group."""
STARTS = 256
"""How many candidates a strategy searches inside a group."""
SETS_OF_UNITS, BEST_SETS, PROPOSALS = 4_000, 100, 60
"""How many sets of units are tried, how many of their rows are looked at, and how many of all rows are kept."""
REPEATED, INSIDE = 0.99995, 0.999
"""Proposals with a larger cosine are the same; rows with at least so large a part in a span belong to it."""
PRICE = 3.0
"""How many units that foretell a row one that contradicts it outweighs."""
PASSES, UNCHANGED = 12, 3
"""How often a group is searched anew at most, and after how many passes without a change it is left as it is."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """What is known of a group of rows and stays the same however they are chosen inside their span."""

    span: Float[Tensor, "member rank"]
    """Orthonormal rows."""
    inputs: Float[Tensor, "value member"]
    """The inputs that belong to the rows of ``span``."""
    margins: Float[Tensor, "gate member"]
    """The gates' pre-activations for them."""


def told_apart(
    problem: RowProblem,
    rows: Float[Tensor, "row rank"],
    strategies: Sequence[SearchSettings],
    generator: torch.Generator,
) -> Float[Tensor, "new rank"]:
    """Replace the rows of every group by those that agree best with the inputs they imply together.

    A group is only solved where it and the rows outside it are all there are; it may then gain rows that were missing.
    """
    for span in _spans(problem, rows):
        is_member = (rows @ span.T).norm(dim=1) > INSIDE
        others = rows[~is_member]
        if len(others) + len(span) != problem.rank:
            continue
        group = _group(problem, span, others)
        rows = torch.cat([others, _solved(problem, group, rows[is_member], strategies, generator)])
    return rows


def are_settled(problem: RowProblem, rows: Float[Tensor, "row rank"], inputs: Float[Tensor, "row value"]) -> bool:
    """Tell whether all rows that share most of their zeros with another fill the span of their group.

    Then what is read out for other rows does not depend on how the group is taken apart. Otherwise one row of a group
    may be there twice in disguise and another be missing, which shifts all inputs a little.
    """
    for index in entangled(problem, rows, ALIKE).nonzero()[:, 0].tolist():
        span = group_span(problem, inputs[index])
        if span is None:
            return False
        is_member = (rows @ span.T).norm(dim=1) > INSIDE
        if not bool(is_member[index]) or int(is_member.sum()) != len(span):
            return False
    return True


def _spans(problem: RowProblem, rows: Tensor) -> Iterator[Tensor]:
    """Find the spans of groups around rows that share their zeros with another, or that their input contradicts."""
    if len(rows) == 0:
        return
    checked = check(problem, rows)
    pairs = nested(problem, rows)
    doubtful = pairs.any(dim=0) | pairs.any(dim=1) | ~checked.is_exact | ~checked.is_single
    seen: list[Tensor] = []
    for index in doubtful.nonzero()[:, 0].tolist():
        if any(float((span @ rows[index]).norm()) > INSIDE for span in seen):
            continue
        span = group_span(problem, checked.inputs[index])
        if span is not None and len(span) > 1:
            seen.append(span)
            yield span


def group_span(problem: RowProblem, around: Float[Tensor, " value"]) -> Float[Tensor, "member rank"] | None:
    """Return an orthonormal basis of the rows that vanish where an input is far from firing; None without a gap."""
    before, after = (around @ problem.weights.T).chunk(2)
    margins = torch.maximum(before, after)
    off = (margins < 0) & problem.informative.bool()
    if int(off.sum()) < 2 * problem.rank:
        return None
    for depth in DEPTHS:
        far = off & (margins <= margins[off].quantile(depth))
        if int(far.sum()) <= problem.rank + LARGEST_GROUP:
            continue
        seen = problem.rows[:, far]
        sizes, vectors = torch.linalg.eigh(seen @ seen.T / far.sum() * problem.units)
        sizes = sizes.clamp(min=1e-20).sqrt()[: LARGEST_GROUP + 1]
        small = int((sizes < VANISHES).sum())
        if 0 < small < len(sizes) and float(sizes[small]) > STANDS_OUT:
            span: Tensor = vectors[:, :small].T
            return span
    return None


def _group(problem: RowProblem, span: Tensor, others: Tensor) -> Group:
    readers = torch.linalg.pinv(torch.cat([span, others]))[:, : len(span)]
    inputs = (problem.basis * problem.strengths) @ readers
    return Group(span=span, inputs=inputs, margins=problem.weights @ inputs)


def _solved(
    problem: RowProblem, group: Group, rows: Tensor, strategies: Sequence[SearchSettings], generator: torch.Generator
) -> Tensor:
    """Choose rows of a group's span, one for each dimension, in passes that start from what the last one came to."""
    chosen = _completed(group, rows)
    pool = chosen[:0]
    idle = 0
    for _ in range(PASSES):
        inputs = (group.inputs @ torch.linalg.inv(chosen @ group.span.T)).T
        inputs = inputs * _signs(problem, inputs, shows_zero(problem, chosen))[:, None]
        found = torch.cat([rows_of(problem, inputs, generator), _found_inside(problem, group, strategies, generator)])
        pool = _best(problem, group, torch.cat([pool, sharpen(problem, without_repeats(found, REPEATED), steps=8)]))
        before, chosen = chosen, _exchanged(problem, group, chosen, pool)
        idle = idle + 1 if torch.equal(before, chosen) else 0
        if idle == UNCHANGED:
            break
    return chosen


def _completed(group: Group, rows: Tensor) -> Tensor:
    """Return as many rows as the group has dimensions: given ones, as long as they are independent, then any."""
    kept: list[Tensor] = []
    for row in torch.cat([rows, group.span]):
        trial = torch.stack([*kept, row])
        if len(kept) < len(group.span) and float(torch.linalg.svdvals(trial)[-1]) > 1e-3:
            kept.append(row)
    return torch.stack(kept)


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
    return torch.cat([*rows, guessed[_evidence(problem, guessed).argsort(descending=True)[:BEST_SETS]]])


def _best(problem: RowProblem, group: Group, rows: Tensor) -> Tensor:
    """Keep the proposals inside the span with the most evidence, each once."""
    rows = rows[(rows @ group.span.T).norm(dim=1) > INSIDE]
    rows = rows[_evidence(problem, rows).argsort(descending=True)]
    return without_repeats(rows, REPEATED)[:PROPOSALS]


def _evidence(problem: RowProblem, rows: Tensor) -> Tensor:
    """Count the zeros of rows beyond those that noise makes of small entries."""
    size, width = problem.normalised(rows).abs(), zero_width(problem, rows)
    small = ((size > width) & (size <= 2 * width) & problem.informative.bool()).sum(dim=1)
    return shows_zero(problem, rows).sum(dim=1) - small


def _exchanged(problem: RowProblem, group: Group, rows: Tensor, proposals: Tensor) -> Tensor:
    """Exchange one row after another for the proposal that suits the whole group best, until none does."""
    pool = torch.cat([rows, proposals])
    codes, zeros, evidence = pool @ group.span.T, shows_zero(problem, pool), _evidence(problem, pool)
    chosen = torch.arange(len(rows), device=rows.device)
    best = float(_suitability(problem, group, chosen[None], codes, zeros, evidence)[0])
    improved = True
    while improved:
        improved = False
        for place in range(len(chosen)):
            trials = chosen.repeat(len(pool), 1)
            trials[:, place] = torch.arange(len(pool), device=rows.device)
            values = _suitability(problem, group, trials, codes, zeros, evidence)
            if float(values.max()) > best + 0.5:
                best, chosen, improved = float(values.max()), trials[values.argmax()], True
    return pool[chosen]


def _suitability(
    problem: RowProblem,
    group: Group,
    trials: Int[Tensor, "trial member"],
    codes: Float[Tensor, "proposal member"],
    zeros: Bool[Tensor, "proposal unit"],
    evidence: Tensor,
) -> Float[Tensor, " trial"]:
    """Say how well each choice of rows fits: zeros, and units on which the inputs of the choice foretell them."""
    inverse, failed = torch.linalg.inv_ex(codes[trials])
    inputs, empty = (group.inputs @ inverse).mT, zeros[trials]
    signs = _signs(problem, inputs, empty, (group.margins @ inverse).mT)
    before, after = (group.margins @ (inverse * signs[:, None, :])).mT.chunk(2, dim=2)
    counted = problem.informative.bool()
    foretold = ((torch.maximum(before, after) <= 0) == empty) & counted
    against = (torch.minimum(before, after) > 0) & empty & counted
    value = (foretold.sum(dim=2) - PRICE * against.sum(dim=2) + evidence[trials]).sum(dim=1)
    usable = (failed == 0) & (torch.linalg.svdvals(codes[trials])[:, -1] > 1e-3)
    return torch.where(usable, value.to(codes), torch.full_like(value.to(codes), -torch.inf))


def _signs(problem: RowProblem, inputs: Tensor, zeros: Tensor, margins: Tensor | None = None) -> Tensor:
    """Return the sign of each input: that of its constant, or else the one that leaves it off where its row is zero."""
    if problem.has_bias:
        return inputs[..., -1].sign()
    margins = inputs @ problem.weights.T if margins is None else margins
    both = torch.cat([zeros, zeros], dim=-1).to(margins)
    return -(margins * both).sum(dim=-1).sign()


def without_repeats(rows: Float[Tensor, "row rank"], cosine: float) -> Float[Tensor, "kept rank"]:
    """Keep the first of rows that are the same but for sign: those with a larger cosine."""
    same = ((rows @ rows.T).abs() > cosine).cpu()
    kept: list[int] = []
    for index in range(len(rows)):
        if not bool(same[index, kept].any()):
            kept.append(index)
    return rows[kept]
