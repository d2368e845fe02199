"""Exchange rows for others while the inputs that all rows imply *together* foretell the zeros of all of them better.

One wrong row shifts the inputs of all others, so the right rows are not those that look best one by one, but those that
suit each other. What an exchange does to every input is a rank-one update, so very many can be tried.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.gates.check import shows_zero, zero_width
from exhume.attacks.gates.search import RowProblem

PRICE = 3.0
"""How many units that foretell a row one that contradicts it outweighs."""
PLACES = 4
"""In how many places a proposal is tried: those of the rows it is mostly made of."""
LEAST_PART = 1e-3
"""The least part that a row must have in a proposal that takes its place."""
MOVED = 12
"""How many inputs, those that an exchange moves most, decide whether it is promising."""
PROMISING = 32
"""How many exchanges are made, where they still help, before all are tried anew."""
AS_SPARSE, LEAST_RIVAL = 0.9, 0.01
"""What makes a row the rival of another: its evidence relative to the other's, and the other's least part in it."""
AT_ONCE = 2**24
"""How many margins are worked out at once."""


def exchanged(
    problem: RowProblem, rows: Float[Tensor, "rank rank"], proposals: Float[Tensor, "proposal rank"]
) -> Float[Tensor, "rank rank"]:
    """Exchange rows for proposals, those first that help all rows most, until none helps any more."""
    value = suits(problem, rows)
    improved = len(proposals) > 0
    while improved:
        improved = False
        for proposal, place in _promising(problem, rows, proposals):
            trial = rows.clone()
            trial[place] = proposals[proposal]
            if (new := suits(problem, trial)) > value:
                rows, value, improved = trial, new, True
    return rows


def suits(problem: RowProblem, rows: Float[Tensor, "rank rank"]) -> float:
    """Say how well rows suit each other; not at all where one is there twice."""
    if float(torch.linalg.svdvals(rows)[-1]) < LEAST_PART:
        return -math.inf
    inputs = (problem.basis * problem.strengths) @ torch.linalg.inv(rows)
    constants = inputs[-1] if problem.has_bias else None
    zeros, found = shows_zero(problem, rows), evidence(problem, rows)
    return float(suitability(problem, (problem.weights @ inputs).T, constants, zeros, found).sum())


def _promising(problem: RowProblem, rows: Tensor, proposals: Tensor) -> list[tuple[int, int]]:
    """Return the exchanges that help if made alone, as proposals and places, the best ones first."""
    proposal, place, gain = _gains(problem, rows, proposals)
    order = [at for at in gain.argsort(descending=True)[:PROMISING].tolist() if float(gain[at]) > 0]
    return [(int(proposal[at]), int(place[at])) for at in order]


def shifts(
    problem: RowProblem, rows: Float[Tensor, "rank rank"], proposals: Float[Tensor, "proposal rank"]
) -> Float[Tensor, " rank"]:
    """Return by how much each input would change if a row were exchanged for a proposal that might stand for it.

    What stays put is determined; what moves hangs on a choice that the zeros do not make.
    """
    readers = torch.linalg.inv(rows)
    inputs = ((problem.basis * problem.strengths) @ readers).T
    sizes = inputs[:, -1:] if problem.has_bias else inputs.norm(dim=1, keepdim=True)
    parts = proposals @ readers
    proposal, place = _trials(parts)
    is_rival = parts[proposal, place].abs() > LEAST_RIVAL
    is_rival &= evidence(problem, proposals)[proposal] >= AS_SPARSE * evidence(problem, rows)[place]
    largest = torch.zeros(len(rows)).to(rows)
    for one, at in zip(proposal[is_rival], place[is_rival], strict=True):
        share = (parts[one] / parts[one, at])[:, None]
        share[at] = 0  # what is read in this place depends on the other rows alone
        moved = inputs - share * inputs[at]
        moved = moved * (sizes / (moved[:, -1:] if problem.has_bias else moved.norm(dim=1, keepdim=True)))
        largest = largest.maximum((moved - inputs).abs().amax(dim=1).nan_to_num(torch.inf))
    return largest / sizes[:, 0].abs() if problem.has_bias else largest


def _gains(problem: RowProblem, rows: Tensor, proposals: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return for exchanges, as proposals and places, by how much they make rows suit each other better.

    Only the inputs that move most are looked at, so this is an estimate.
    """
    proposed_zeros, proposed_evidence = shows_zero(problem, proposals), evidence(problem, proposals)
    zeros, found = shows_zero(problem, rows), evidence(problem, rows)
    readers = torch.linalg.inv(rows)
    inputs = (problem.basis * problem.strengths) @ readers
    margins = (problem.weights @ inputs).T.float()
    constants = inputs[-1] if problem.has_bias else None
    before = suitability(problem, margins, constants, zeros, found)
    parts = proposals @ readers
    few = min(MOVED, len(rows))
    gains = [found[:0]]
    proposals_tried, places = _trials(parts)
    size = max(1, AT_ONCE // (few * margins.shape[1]))
    for start in range(0, len(places), size):
        proposal, place = proposals_tried[start : start + size], places[start : start + size]
        at = torch.arange(len(place), device=rows.device)
        # With the row in this place replaced, every other input loses its share of the input that was read there.
        share = parts[proposal] / parts[proposal, place][:, None]
        share[at, place] = torch.inf
        moved = share.abs().topk(few, dim=1).indices
        share[at, place] = 1 - 1 / parts[proposal, place]
        share = share.gather(1, moved)
        is_new = moved == place[:, None]
        values = suitability(
            problem,
            margins[moved] - margins[place][:, None, :] * share[:, :, None].float(),
            None if constants is None else constants[moved] - constants[place][:, None] * share,
            torch.where(is_new[:, :, None], proposed_zeros[proposal][:, None, :], zeros[moved]),
            torch.where(is_new, proposed_evidence[proposal][:, None], found[moved]),
        )
        gains.append((values - before[moved]).sum(dim=1))
    return proposals_tried, places, torch.cat(gains)


def _trials(parts: Float[Tensor, "proposal row"]) -> tuple[Tensor, Tensor]:
    """Pair every proposal with the places of the rows it is mostly made of."""
    sizes, places = parts.abs().topk(min(PLACES, parts.shape[1]), dim=1)
    proposal, column = (sizes > LEAST_PART).nonzero(as_tuple=True)
    return proposal, places[proposal, column]


def suitability(
    problem: RowProblem,
    margins: Float[Tensor, "*trial row gate"],
    constants: Float[Tensor, "*trial row"] | None,
    zeros: Bool[Tensor, "*trial row unit"],
    found: Float[Tensor, "*trial row"],
) -> Float[Tensor, "*trial row"]:
    """Say how well rows suit their inputs: by their zeros, and the units on which the inputs foretell these.

    Args:
        problem: what the rows are rows of.
        margins: the gates' pre-activations for the inputs that the rows imply, whatever their sign.
        constants: the inputs' last values, whose sign is known; without a bias the zeros decide on the sign.
        zeros: where each row is zero.
        found: the evidence of each row.
    """
    if constants is None:
        constants = -(margins * torch.cat([zeros, zeros], dim=-1)).sum(dim=-1)
    before, after = (margins * constants.sign()[..., None].to(margins)).chunk(2, dim=-1)
    counted = problem.informative.bool()
    foretold = ((torch.maximum(before, after) <= 0) == zeros) & counted
    against = (torch.minimum(before, after) > 0) & zeros & counted
    return foretold.sum(dim=-1) - PRICE * against.sum(dim=-1) + found


def evidence(problem: RowProblem, rows: Float[Tensor, "row rank"]) -> Float[Tensor, " row"]:
    """Count the zeros of rows beyond those that noise makes of small entries."""
    size, width = problem.normalised(rows).abs(), zero_width(problem, rows)
    small = ((size > width) & (size <= 2 * width) & problem.informative.bool()).sum(dim=1)
    return (shows_zero(problem, rows).sum(dim=1) - small).to(rows)
