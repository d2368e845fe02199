"""Separate near-duplicate inputs: find the exact rows inside a group whose rows are zero on nearly the same units.

The rows of near-duplicates and all mixtures of them share most of their zeros, so a search may end in any of them. But
mixtures of a group's rows span the same space as the rows. Rows are searched anew inside this span of few dimensions,
and the inputs that they imply *jointly* decide which of them belong together (:mod:`exhume.attacks.gates.exchange`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from exhume.attacks.gates.check import check_rows
from exhume.attacks.gates.exchange import exchange_rows, joint_score
from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.readout import missing_directions
from exhume.attacks.gates.rows import drop_repeats, find_rows, sharpen
from exhume.attacks.gates.search import search_rows
from exhume.attacks.gates.starts import draw_starts
from exhume.attacks.gates.zeros import count_evidence, has_zeros_within


@dataclass(frozen=True, kw_only=True)
class Group:
    """The span of a group of rows; it does not depend on how rows are chosen inside it."""

    span: Float[Tensor, "member rank"]
    """Orthonormal rows."""
    inputs: Float[Tensor, "value member"]
    """The inputs that belong to the rows of ``span``."""


def separate_near_duplicates(
    problem: RowProblem, rows: Float[Tensor, "row rank"], generator: torch.Generator
) -> Float[Tensor, "new rank"]:
    """Replace rows by those that agree best with the inputs that all of them imply together.

    Each pass proposes rows for the inputs of the last one, and others inside the spans of groups. A few rows may be
    missing; with more, the rows are returned as they are.
    """
    rules = problem.search
    rows = _add_missing(problem, rows, generator)
    if len(rows) < problem.rank:
        return rows
    pool, idle = rows[:0], 0
    for _ in range(rules.passes):
        checked = check_rows(problem, rows)
        worst = checked.agreement.argsort()[: rules.proposed_inputs]
        found = [find_rows(problem, checked.inputs[worst], generator)]
        found += [_search_inside(problem, group, generator) for group in _find_groups(problem, rows)]
        pool = _keep_best(problem, torch.cat([pool, _sharpen_distinct(problem, torch.cat(found))]))
        before, rows = rows, exchange_rows(problem, rows, pool)
        if torch.equal(before, rows):
            rows = _shuffle_groups(problem, rows, pool, generator)
        idle = idle + 1 if torch.equal(before, rows) else 0
        if idle == rules.idle_passes:
            break
    return rows


def keep_independent(problem: RowProblem, rows: Float[Tensor, "row rank"]) -> Float[Tensor, "kept rank"]:
    """Drop rows that the rows before them span."""
    kept, basis = [], rows[:0]
    for index, row in enumerate(rows):
        rest = row - (row @ basis.T) @ basis
        rest = rest - (rest @ basis.T) @ basis
        if len(basis) < rows.shape[1] and float(rest.norm()) > problem.search.least_independent:
            kept.append(index)
            basis = torch.cat([basis, (rest / rest.norm())[None]])
    return rows[kept]


def _add_missing(problem: RowProblem, rows: Tensor, generator: torch.Generator) -> Tensor:
    """Drop dependent rows; where few are missing, add the best ones for inputs that only missing rows span."""
    rules = problem.search
    rows = keep_independent(problem, rows)
    if 0 < problem.rank - len(rows) <= rules.few_missing:
        directions, strengths = missing_directions(problem, rows)
        starts = draw_starts(problem, directions, strengths, rules.missing_starts, generator)
        found = find_rows(problem, starts, generator)
        found = torch.cat([found, _sharpen_distinct(problem, found)])
        best = found[count_evidence(problem, found).argsort(descending=True)]
        rows = keep_independent(problem, torch.cat([rows, best]))
    return rows


def _sharpen_distinct(problem: RowProblem, rows: Tensor) -> Tensor:
    return sharpen(problem, drop_repeats(rows, problem.search.repeated_cosine), steps=8)


def _keep_best(problem: RowProblem, rows: Tensor) -> Tensor:
    """Keep the proposals with the most evidence, each once."""
    rows = rows[count_evidence(problem, rows).argsort(descending=True)]
    return drop_repeats(rows, problem.search.repeated_cosine)[: problem.search.proposals_per_row * problem.rank]


def _shuffle_groups(problem: RowProblem, rows: Tensor, pool: Tensor, generator: torch.Generator) -> Tensor:
    """Choose the rows of each group at random from the pool, exchange, and keep the result if it scores better."""
    rules = problem.search
    for group in _find_groups(problem, rows):
        others = rows[(rows @ group.span.T).norm(dim=1) <= rules.inside_cosine]
        inside = pool[(pool @ group.span.T).norm(dim=1) > rules.inside_cosine]
        for _ in range(rules.shuffles):
            order = torch.randperm(len(inside), generator=generator).to(inside.device)
            trial = keep_independent(problem, torch.cat([others, inside[order]]))
            if len(trial) == problem.rank:
                trial = exchange_rows(problem, trial, inside)
                rows = trial if joint_score(problem, trial) > joint_score(problem, rows) else rows
    return rows


def _find_groups(problem: RowProblem, rows: Tensor) -> Iterator[Group]:
    """Find groups of rows that are linked by sharing nearly all their zeros."""
    inputs = problem.change @ torch.linalg.inv(rows)
    pairs = has_zeros_within(problem, rows, problem.search.linked_zeros).cpu().numpy()
    count, labels = connected_components(pairs, directed=False)
    for label in range(count):
        members = torch.as_tensor(labels == label, device=rows.device)
        if 1 < int(members.sum()) <= problem.search.largest_group:
            span = torch.linalg.qr(rows[members].T).Q.T
            yield Group(span=span, inputs=inputs[:, members] @ (rows[members] @ span.T))


def _search_inside(problem: RowProblem, group: Group, generator: torch.Generator) -> Tensor:
    """Search the span of a group by strategies, and by assuming random sets of units to be zero."""
    rules = problem.search
    basis, strengths, _ = torch.linalg.svd(group.inputs, full_matrices=False)
    entries = group.span @ problem.rows
    # Units on which the whole group is zero carry no information about its rows, and much about its inputs.
    live = entries.norm(dim=0) > rules.group_silence * entries.norm() / problem.units**0.5
    inside = replace(problem, rows=entries * live, basis=basis, strengths=strengths, informative=live.to(entries))
    starts = draw_starts(inside, basis, strengths, rules.group_starts, generator)
    rows = [search_rows(inside, starts, basis, strategy)[0] @ group.span for strategy in rules.group_strategies]
    sets = torch.randint(int(live.sum()), (rules.unit_sets, len(entries) - 1), generator=generator).to(live.device)
    normals = torch.linalg.svd(entries[:, live][:, sets].permute(1, 2, 0), full_matrices=True).Vh[:, -1]
    guessed = normals @ group.span
    best = count_evidence(problem, guessed).argsort(descending=True)[: rules.best_sets]
    return torch.cat([*rows, guessed[best]])
