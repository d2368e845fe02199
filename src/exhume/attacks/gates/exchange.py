"""Exchange rows for others while the inputs that all rows imply *together* predict the zeros of all of them better.

One wrong row shifts the inputs of all others, so the right rows are those that fit together, not those that look best
one by one. An exchange changes every input by a rank-one update, so very many can be tried.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.gates.firing import REACH, UNFORESEEN, firing_distance
from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.rows import are_same
from exhume.attacks.gates.zeros import count_beyond_chance, find_zeros

AT_ONE_END = 0.3
"""Cost of a zero at a unit that the input turns on at one end of training, in zeros: with mini-batches an input may be
used first and last when the unit is off. With 3, 28 of 32 images of a federated round are found instead of 32."""
WORTH = 5.0
"""Negative logarithm of the probability that an entry is zero by chance: what a zero says, in natural units."""
VOLUME = 4.0
"""Weight of the logarithm of the volume that the rows span, in zeros, where sums of squares are known. Rows of inputs
that fired units together, in a single early step, combine to rows with more zeros, and gates at the end say nothing
about these units; but such rows cancel, and span less. On CIFAR-10 one beats a true row by 26 zeros, at a logarithm of
the volume that is lower by 10."""
MOST_OUTSIDE = 10
"""Largest number of values of an input outside their range that count, one zero each."""
SINGULAR = 1e-7
"""Least singular value of rows that determine inputs."""
LEAST_GAIN = 1e-3
"""Least gain of an exchange, in zeros; less is rounding."""
LEAST_PART = 1e-3
"""Least part of a row in a proposal that replaces it."""
PLACES = 4
"""Number of rows that a proposal is tried in place of: those it is mostly made of."""
MOVED_INPUTS = 6
"""Number of inputs, those that an exchange moves most, by which it is judged."""
PROMISING = 32
"""Number of exchanges that are made before all are judged again."""
MARGINS_AT_ONCE = 2**24
"""Largest number of margins that are computed at once; limits memory."""


@dataclass(frozen=True)
class ClassifiedRows:
    """Rows with their zeros, classified once: an exchange changes few of them."""

    rows: Float[Tensor, "row rank"]
    zeros: Bool[Tensor, "row unit"]
    evidence: Float[Tensor, " row"]
    """Number of zeros beyond chance."""

    @classmethod
    def of(cls, problem: RowProblem, rows: Float[Tensor, "row rank"]) -> "ClassifiedRows":
        """Classify the entries of rows."""
        zeros = find_zeros(problem, rows)
        return cls(rows, zeros, count_beyond_chance(problem, rows, zeros))

    def replaced(self, places: list[int], others: "ClassifiedRows", chosen: list[int]) -> "ClassifiedRows":
        """Return the rows with those at ``places`` replaced by others."""

        def exchange(mine: Tensor, theirs: Tensor) -> Tensor:
            mine = mine.clone()
            mine[places] = theirs[chosen]
            return mine

        return ClassifiedRows(
            exchange(self.rows, others.rows),
            exchange(self.zeros, others.zeros),
            exchange(self.evidence, others.evidence),
        )

    def score(self, problem: RowProblem) -> float:
        """Return how well the rows fit together; minus infinity for rows that depend on each other."""
        readers = torch.linalg.inv_ex(self.rows).inverse
        if not float(readers.norm()) < 1 / SINGULAR:  # not a number for singular rows
            return -math.inf
        codes = (problem.strengths[:, None] * readers).T
        constants = codes @ problem.basis[-1] if problem.has_bias else None
        margins = codes @ problem.halfspaces.T
        score = float(score_rows(problem, margins, codes.norm(dim=1), constants, self.zeros, self.evidence).sum())
        return score + _volume_weight(problem) * float(torch.linalg.slogdet(self.rows).logabsdet)


def joint_score(problem: RowProblem, rows: Float[Tensor, "rank rank"]) -> float:
    """Return how well rows fit together; minus infinity for rows that depend on each other."""
    return ClassifiedRows.of(problem, rows).score(problem)


def exchange_rows(
    problem: RowProblem, rows: Float[Tensor, "rank rank"], proposals: Float[Tensor, "proposal rank"]
) -> Float[Tensor, "rank rank"]:
    """Exchange rows for proposals, those with the largest gain first, until no exchange helps."""
    proposals = proposals[~are_same(problem, proposals, rows).any(dim=1)]
    present, proposed = ClassifiedRows.of(problem, rows), ClassifiedRows.of(problem, proposals)
    score = present.score(problem)
    improved = len(proposals) > 0
    while improved:
        improved = False
        for proposal, place in _promising_exchanges(problem, present, proposed):
            trial = present.replaced([place], proposed, [proposal])
            if (new := trial.score(problem)) > score + LEAST_GAIN:
                present, score, improved = trial, new, True
    return present.rows


def read_codes(problem: RowProblem, rows: Float[Tensor, "rank rank"]) -> Float[Tensor, "rank rank"]:
    """Return the inputs that all rows together imply, in coordinates of the basis, up to their sign."""
    codes: Tensor = (problem.strengths[:, None] * torch.linalg.inv(rows)).T
    return codes


def score_rows(
    problem: RowProblem,
    margins: Float[Tensor, "*trial row halfspace"],
    lengths: Float[Tensor, "*trial row"],
    constants: Float[Tensor, "*trial row"] | None,
    zeros: Bool[Tensor, "*trial row unit"],
    evidence: Float[Tensor, "*trial row"],
) -> Float[Tensor, "*trial row"]:
    """Score how well rows fit their inputs, as the logarithm of a likelihood in units of what a zero says.

    Every zero beyond chance counts. One at a unit that the input turns on is chance after all, and an entry that is not
    zero at a unit that the input leaves off costs the more, the farther the unit is from firing. Values of the input
    outside their range cost as well, and so do large effects: that those of several inputs cancel to one part in ``k``
    has a chance of ``1/k``.

    Args:
        problem: what the rows are rows of.
        margins: products of the inputs that the rows imply with all halfspaces, up to sign.
        lengths: norms of these inputs, which are not scaled, so that they grow with the effects of the inputs.
        constants: last values of the inputs, whose sign is known; without a bias the zeros decide the sign.
        zeros: where each row is zero.
        evidence: number of zeros of each row beyond chance.
    """
    units = zeros.shape[-1]
    if constants is None:
        constants = -(margins[..., : 2 * units] * torch.cat([zeros, zeros], dim=-1)).sum(dim=-1)
    margins = margins * constants.sign()[..., None].to(margins)
    before, after, inside = margins[..., :units], margins[..., units : 2 * units], margins[..., 2 * units :]
    informative = problem.informative.bool()
    is_zero, is_on = zeros & informative, torch.maximum(before, after) > 0
    at_both = torch.minimum(before, after) > 0
    by_chance = (is_zero & at_both).sum(dim=-1) + AT_ONE_END * (is_zero & is_on & ~at_both).sum(dim=-1)
    surprise = (firing_distance(problem, before, after, lengths.to(margins)) / REACH).clamp(max=-math.log(UNFORESEEN))
    outside = (inside < 0).sum(dim=-1).clamp(max=MOST_OUTSIDE)
    unlikely = (surprise * (~zeros & problem.gated.bool())).sum(dim=-1) + lengths.clamp(min=1e-300).log()
    return evidence - by_chance - unlikely / WORTH - outside


def _volume_weight(problem: RowProblem) -> float:
    """Return what the logarithm of the volume that rows span counts."""
    return 0.0 if problem.forms is None else VOLUME


def _promising_exchanges(
    problem: RowProblem, present: ClassifiedRows, proposed: ClassifiedRows
) -> list[tuple[int, int]]:
    """Return the exchanges that help if made alone, as pairs of proposal and place, the best first."""
    proposal, place, gain = _estimate_gains(problem, present, proposed)
    best = gain.argsort(descending=True)[:PROMISING].tolist()
    return [(int(proposal[at]), int(place[at])) for at in best if float(gain[at]) > LEAST_GAIN]


def _estimate_gains(
    problem: RowProblem, present: ClassifiedRows, proposed: ClassifiedRows
) -> tuple[Tensor, Tensor, Tensor]:
    """Return exchanges, as proposals and places, and the gain in joint score of each.

    An estimate: only the inputs that move most are scored.
    """
    rows, zeros, evidence = present.rows, present.zeros, present.evidence
    readers = torch.linalg.inv(rows)
    codes = (problem.strengths[:, None] * readers).T
    margins = (codes @ problem.halfspaces.T).float()
    constants = codes @ problem.basis[-1] if problem.has_bias else None
    before = score_rows(problem, margins, codes.norm(dim=1), constants, zeros, evidence)
    parts = proposed.rows @ readers
    few = min(MOVED_INPUTS, len(rows))
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
            (codes[moved] - codes[place][:, None, :] * share[:, :, None]).norm(dim=2),
            None if constants is None else constants[moved] - constants[place][:, None] * share,
            torch.where(is_new[:, :, None], proposed.zeros[proposal][:, None, :], zeros[moved]),
            torch.where(is_new, proposed.evidence[proposal][:, None], evidence[moved]),
        )
        volume = parts[proposal, place].abs().log()
        gains.append((after - before[moved]).sum(dim=1) + _volume_weight(problem) * volume)
    return proposals_tried, places, torch.cat(gains)


def _pair_with_places(problem: RowProblem, parts: Float[Tensor, "proposal row"]) -> tuple[Tensor, Tensor]:
    """Pair every proposal with the places of the rows it is mostly made of."""
    sizes, places = parts.abs().topk(min(PLACES, parts.shape[1]), dim=1)
    proposal, column = (sizes > LEAST_PART).nonzero(as_tuple=True)
    return proposal, places[proposal, column]
