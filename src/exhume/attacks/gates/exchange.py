"""Exchange rows for others while the inputs that all rows imply *together* predict the zeros of all of them better.

One wrong row shifts the inputs of all others, so the right rows are those that fit together, not those that look best
one by one. An exchange changes every input by a rank-one update, so very many can be tried.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhume.attacks.gates.firing import firing_probability
from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.rows import are_same
from exhume.attacks.gates.rules import SearchRules
from exhume.attacks.gates.zeros import count_beyond_chance, find_zeros
from exhume.core.devices import numbers_at_once
from exhume.core.progress import Tick, no_tick

LEAST_GAIN = 1e-3
"""Least gain of an exchange, in zeros; less is rounding."""


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
        if not float(readers.norm()) < torch.finfo(readers.dtype).eps ** -0.5:  # not a number for singular rows
            return -math.inf
        codes = (problem.strengths[:, None] * readers).T
        constants = codes @ problem.basis[-1] if problem.has_bias else None
        gates = orient_margins(codes @ problem.halfspaces.T, constants, self.zeros)
        rate = measure_rate(problem, gates, self.zeros)
        score = float(score_rows(problem, gates, codes.norm(dim=1), self.zeros, self.evidence, rate).sum())
        return score + _volume_weight(problem) * float(torch.linalg.slogdet(self.rows).logabsdet)


def joint_score(problem: RowProblem, rows: Float[Tensor, "rank rank"]) -> float:
    """Return how well rows fit together; minus infinity for rows that depend on each other."""
    return ClassifiedRows.of(problem, rows).score(problem)


def exchange_rows(
    problem: RowProblem,
    rows: Float[Tensor, "rank rank"],
    proposals: Float[Tensor, "proposal rank"],
    tick: Tick = no_tick,
) -> Float[Tensor, "rank rank"]:
    """Exchange rows for proposals, those with the largest gain first, until no exchange helps.

    ``tick`` is called before each trial; it may raise to stop.
    """
    proposals = proposals[~are_same(problem, proposals, rows).any(dim=1)]
    present, proposed = ClassifiedRows.of(problem, rows), ClassifiedRows.of(problem, proposals)
    score = present.score(problem)
    improved = len(proposals) > 0
    while improved:
        improved = False
        for proposal, place in _promising_exchanges(problem, present, proposed, tick):
            tick()
            trial = present.replaced([place], proposed, [proposal])
            if (new := trial.score(problem)) > score + LEAST_GAIN:
                present, score, improved = trial, new, True
    return present.rows


def read_codes(problem: RowProblem, rows: Float[Tensor, "rank rank"]) -> Float[Tensor, "rank rank"]:
    """Return the inputs that all rows together imply, in coordinates of the basis, up to their sign."""
    codes: Tensor = (problem.strengths[:, None] * torch.linalg.inv(rows)).T
    return codes


class Margins(NamedTuple):
    """Pre-activations of inputs, with the right sign."""

    before: Float[Tensor, "*trial row unit"]
    after: Float[Tensor, "*trial row unit"]
    inside: Float[Tensor, "*trial row bound"]
    """Positive where values lie in their range."""

    @property
    def at_start(self) -> Bool[Tensor, "*trial row unit"]:
        """Units that are on before training."""
        return self.before > 0

    @property
    def at_end_only(self) -> Bool[Tensor, "*trial row unit"]:
        """Units that are on after training and were off before it."""
        return (self.before <= 0) & (self.after > 0)


def orient_margins(
    margins: Float[Tensor, "*trial row halfspace"],
    constants: Float[Tensor, "*trial row"] | None,
    zeros: Bool[Tensor, "*trial row unit"],
) -> Margins:
    """Split margins by halfspaces and choose the sign of each input.

    Args:
        margins: products of inputs with all halfspaces, up to sign.
        constants: last values of the inputs, whose sign is known; without a bias the zeros decide the sign.
        zeros: where each row is zero.
    """
    units = zeros.shape[-1]
    if constants is None:
        constants = -(margins[..., : 2 * units] * torch.cat([zeros, zeros], dim=-1)).sum(dim=-1)
    margins = margins * constants.sign()[..., None].to(margins)
    return Margins(margins[..., :units], margins[..., units : 2 * units], margins[..., 2 * units :])


def measure_rate(problem: RowProblem, margins: Margins, zeros: Bool[Tensor, "row unit"]) -> float:
    """Return how often rows are zero at units that their inputs turn on before training.

    The first step that an input is used in moves these units. In full batches this is the first step of all, and hardly
    any entry is zero; in mini-batches a unit may be off by then. So the rate is measured in the rows themselves, in the
    half of them with the fewest such zeros: mixtures have far more, since the difference of two rows is zero wherever
    these have one ratio, as those of near-duplicates have on many units.
    """
    is_on = margins.at_start & problem.gated.bool()
    hits, trials = (zeros & is_on).sum(dim=1), is_on.sum(dim=1)
    fewest = (hits / trials.clamp(min=1)).argsort()[: (len(zeros) + 1) // 2]
    return (float(hits[fewest].sum()) + 0.5) / (float(trials[fewest].sum()) + 1.0)


def score_rows(
    problem: RowProblem,
    margins: Margins,
    lengths: Float[Tensor, "*trial row"],
    zeros: Bool[Tensor, "*trial row unit"],
    evidence: Float[Tensor, "*trial row"],
    rate: float,
) -> Float[Tensor, "*trial row"]:
    """Score how well rows fit their inputs, as the logarithm of a likelihood in units of what a zero says.

    Every zero beyond chance counts. One at a unit that the input turns on from the start costs the more, the rarer that
    is in all rows (:func:`measure_rate`). Units that an input turns on later are mostly all zero, if it was learned by
    then, or all nonzero; a mixture of both costs its entropy. An entry that is not zero at a
    unit that the input leaves off costs the more, the farther the unit is from firing. Values of the input outside
    their range cost as well, and so do large effects: that those of several inputs cancel to one part in ``k`` has a
    chance of ``1/k``.

    Args:
        problem: what the rows are rows of.
        margins: pre-activations of the inputs that the rows imply.
        lengths: norms of these inputs, which are not scaled, so that they grow with the effects of the inputs.
        zeros: where each row is zero.
        evidence: number of zeros of each row beyond chance.
        rate: how often a row is zero where its input is on from the start.
    """
    gated = problem.gated.bool()
    at_start, at_end = margins.at_start & gated, margins.at_end_only & gated
    counts = (zeros & at_start, at_start, zeros & at_end, at_end)
    hits, trials, late, later = (where.sum(dim=-1).to(evidence) for where in counts)
    likely = hits * math.log(rate) + (trials - hits) * math.log1p(-rate)
    others = later - late
    likely = likely + _x_log_x(late) + _x_log_x(others) - _x_log_x(late + others)
    surprise = -firing_probability(problem, margins.before, margins.after, lengths.to(margins.before)).log()
    outside = (margins.inside < 0).any(dim=-1).to(evidence)
    unlikely = (surprise * (~zeros & gated)).sum(dim=-1) + lengths.clamp(min=1e-300).log()
    # About one entry of a row is zero by chance, so that a zero says as much as the logarithm of the number of units.
    return evidence + (likely - unlikely) / math.log(max(problem.units, 2)) - outside


def _x_log_x(count: Tensor) -> Tensor:
    return torch.xlogy(count, count)


def _volume_weight(problem: RowProblem) -> float:
    """Return what the logarithm of the volume that rows span counts."""
    return 0.0 if problem.forms is None else problem.search.volume


def _promising_exchanges(
    problem: RowProblem, present: ClassifiedRows, proposed: ClassifiedRows, tick: Tick = no_tick
) -> list[tuple[int, int]]:
    """Return the exchanges that help if made alone, as pairs of proposal and place, the best first."""
    proposal, place, gain = _estimate_gains(problem, present, proposed, tick)
    best = gain.argsort(descending=True)[: problem.rank].tolist()
    return [(int(proposal[at]), int(place[at])) for at in best if float(gain[at]) > LEAST_GAIN]


def _estimate_gains(
    problem: RowProblem, present: ClassifiedRows, proposed: ClassifiedRows, tick: Tick = no_tick
) -> tuple[Tensor, Tensor, Tensor]:
    """Return exchanges, as proposals and places, and the gain in joint score of each.

    An estimate: only the inputs that move most are scored.
    """
    rows, zeros, evidence = present.rows, present.zeros, present.evidence
    readers = torch.linalg.inv(rows)
    codes = (problem.strengths[:, None] * readers).T
    margins = (codes @ problem.halfspaces.T).float()
    constants = codes @ problem.basis[-1] if problem.has_bias else None
    gates = orient_margins(margins, constants, zeros)
    rate = measure_rate(problem, gates, zeros)
    before = score_rows(problem, gates, codes.norm(dim=1), zeros, evidence, rate)
    parts = proposed.rows @ readers
    few = min(problem.search.group, len(rows))
    gains = [evidence[:0]]
    proposals_tried, places = _pair_with_places(problem.search, parts, before)
    size = max(1, numbers_at_once(rows.device) // (few * margins.shape[1]))
    for start in range(0, len(places), size):
        tick()
        proposal, place = proposals_tried[start : start + size], places[start : start + size]
        at = torch.arange(len(place), device=rows.device)
        # With the row at this place replaced, every other input loses its share of the input that was read there.
        share = parts[proposal] / parts[proposal, place][:, None]
        share[at, place] = torch.inf
        moved = share.abs().topk(few, dim=1).indices
        share[at, place] = 1 - 1 / parts[proposal, place]
        share = share.gather(1, moved)
        is_new = moved == place[:, None]
        new_zeros = torch.where(is_new[:, :, None], proposed.zeros[proposal][:, None, :], zeros[moved])
        new_margins = margins[moved] - margins[place][:, None, :] * share[:, :, None].float()
        after = score_rows(
            problem,
            orient_margins(
                new_margins,
                None if constants is None else constants[moved] - constants[place][:, None] * share,
                new_zeros,
            ),
            (codes[moved] - codes[place][:, None, :] * share[:, :, None]).norm(dim=2),
            new_zeros,
            torch.where(is_new, proposed.evidence[proposal][:, None], evidence[moved]),
            rate,
        )
        volume = parts[proposal, place].abs().log()
        gains.append((after - before[moved]).sum(dim=1) + _volume_weight(problem) * volume)
    return proposals_tried, places, torch.cat(gains)


def _pair_with_places(
    rules: SearchRules, parts: Float[Tensor, "proposal row"], scores: Float[Tensor, " row"]
) -> tuple[Int[Tensor, " pair"], Int[Tensor, " pair"]]:
    """Pair every proposal with the places of the rows it is mostly made of, and of those that fit worst."""
    few = min(rules.group, parts.shape[1])
    is_tried = torch.zeros_like(parts, dtype=torch.bool)
    is_part = parts.abs() > rules.independence
    for order in (parts.abs(), -scores.expand_as(parts).masked_fill(~is_part, torch.inf)):
        is_tried.scatter_(1, order.topk(few, dim=1).indices, True)
    proposal, place = (is_tried & is_part).nonzero(as_tuple=True)
    return proposal, place
