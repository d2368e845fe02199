"""Exchange rows for others while the inputs that all rows imply *together* predict the zeros of all of them better.

One wrong row shifts the inputs of all others, so the right rows are those that fit together, not those that look best
one by one. An exchange changes every input by a rank-one update, so very many can be tried.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.zeros import count_evidence, find_zeros

MARGINS_AT_ONCE = 2**24
"""Largest number of margins that are computed at once; limits memory."""


def exchange_rows(
    problem: RowProblem, rows: Float[Tensor, "rank rank"], proposals: Float[Tensor, "proposal rank"]
) -> Float[Tensor, "rank rank"]:
    """Exchange rows for proposals, those with the largest gain first, until no exchange helps."""
    score = joint_score(problem, rows)
    improved = len(proposals) > 0
    while improved:
        improved = False
        for proposal, place in _promising_exchanges(problem, rows, proposals):
            trial = rows.clone()
            trial[place] = proposals[proposal]
            if (new := joint_score(problem, trial)) > score:
                rows, score, improved = trial, new, True
    return rows


def joint_score(problem: RowProblem, rows: Float[Tensor, "rank rank"]) -> float:
    """Return how well rows fit together; minus infinity for rows that depend on each other."""
    if float(torch.linalg.svdvals(rows)[-1]) < problem.search.least_part:
        return -math.inf
    inputs = problem.change @ torch.linalg.inv(rows)
    constants = inputs[-1] if problem.has_bias else None
    zeros, evidence = find_zeros(problem, rows), count_evidence(problem, rows)
    return float(score_rows(problem, (problem.gate_weights @ inputs).T, constants, zeros, evidence).sum())


def score_rows(
    problem: RowProblem,
    margins: Float[Tensor, "*trial row gate"],
    constants: Float[Tensor, "*trial row"] | None,
    zeros: Bool[Tensor, "*trial row unit"],
    evidence: Float[Tensor, "*trial row"],
) -> Float[Tensor, "*trial row"]:
    """Score how well rows fit their inputs: agreeing units minus weighted contradicting units, plus evidence.

    Args:
        problem: what the rows are rows of.
        margins: pre-activations of the gates for the inputs that the rows imply, up to sign.
        constants: last values of the inputs, whose sign is known; without a bias the zeros decide the sign.
        zeros: where each row is zero.
        evidence: number of zeros of each row beyond chance.
    """
    if constants is None:
        constants = -(margins * torch.cat([zeros, zeros], dim=-1)).sum(dim=-1)
    before, after = (margins * constants.sign()[..., None].to(margins)).chunk(2, dim=-1)
    informative = problem.informative.bool()
    agreeing = ((torch.maximum(before, after) <= 0) == zeros) & informative
    contradicting = (torch.minimum(before, after) > 0) & zeros & informative
    price = problem.search.contradiction_weight
    return agreeing.sum(dim=-1) - price * contradicting.sum(dim=-1) + evidence


def _promising_exchanges(problem: RowProblem, rows: Tensor, proposals: Tensor) -> list[tuple[int, int]]:
    """Return the exchanges that help if made alone, as pairs of proposal and place, the best first."""
    proposal, place, gain = _estimate_gains(problem, rows, proposals)
    best = gain.argsort(descending=True)[: problem.search.promising].tolist()
    return [(int(proposal[at]), int(place[at])) for at in best if float(gain[at]) > 0]


def _estimate_gains(problem: RowProblem, rows: Tensor, proposals: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return exchanges, as proposals and places, and the gain in joint score of each.

    An estimate: only the inputs that move most are scored.
    """
    proposed_zeros, proposed_evidence = find_zeros(problem, proposals), count_evidence(problem, proposals)
    zeros, evidence = find_zeros(problem, rows), count_evidence(problem, rows)
    readers = torch.linalg.inv(rows)
    inputs = problem.change @ readers
    margins = (problem.gate_weights @ inputs).T.float()
    constants = inputs[-1] if problem.has_bias else None
    before = score_rows(problem, margins, constants, zeros, evidence)
    parts = proposals @ readers
    few = min(problem.search.moved_inputs, len(rows))
    gains = [evidence[:0]]
    proposals_tried, places = _pair_with_places(problem, parts)
    size = max(1, MARGINS_AT_ONCE // (few * margins.shape[1]))
    for start in range(0, len(places), size):
        proposal, place = proposals_tried[start : start + size], places[start : start + size]
        at = torch.arange(len(place), device=rows.device)
        # With the row at this place replaced, every other input loses its share of the input that was read there.
        share = parts[proposal] / parts[proposal, place][:, None]
        share[at, place] = torch.inf
        moved = share.abs().topk(few, dim=1).indices
        share[at, place] = 1 - 1 / parts[proposal, place]
        share = share.gather(1, moved)
        is_new = moved == place[:, None]
        after = score_rows(
            problem,
            margins[moved] - margins[place][:, None, :] * share[:, :, None].float(),
            None if constants is None else constants[moved] - constants[place][:, None] * share,
            torch.where(is_new[:, :, None], proposed_zeros[proposal][:, None, :], zeros[moved]),
            torch.where(is_new, proposed_evidence[proposal][:, None], evidence[moved]),
        )
        gains.append((after - before[moved]).sum(dim=1))
    return proposals_tried, places, torch.cat(gains)


def _pair_with_places(problem: RowProblem, parts: Float[Tensor, "proposal row"]) -> tuple[Tensor, Tensor]:
    """Pair every proposal with the places of the rows it is mostly made of."""
    sizes, places = parts.abs().topk(min(problem.search.places, parts.shape[1]), dim=1)
    proposal, column = (sizes > problem.search.least_part).nonzero(as_tuple=True)
    return proposal, places[proposal, column]
