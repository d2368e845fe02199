"""Decide which rows may be mixed into which: a row that is found may be the true one plus parts of others.

A mixture of ``g`` rows is zero on their common zeros, on up to ``g - 1`` units that its coefficients are chosen for,
and by chance. So the zeros that a part does not share speak against it: beyond those that coefficients can force, each
is a coincidence. How unlikely that is depends on where the inputs are. A part of another row in row ``j`` moves the
input of the part, and not that of ``j``. So there are two cases:

- The input of ``j`` is right. Then units that it leaves off must have fired in mid-training and cancel the parts there.
- The input of ``j`` is wrong. Then ``j`` is itself a part of some row, whose own zeros speak against that.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.gates.firing import firing_probability
from exhume.attacks.gates.fit import fit_codes
from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.squares import refute_parts
from exhume.attacks.gates.zeros import zero_width
from exhume.core.chance import bound_log_tail
from exhume.core.progress import Tick, no_tick


class UnitCounts(NamedTuple):
    """Units of rows that count for or against other rows as parts: numbers per row, or per row and part.

    Per row they are of all units; per row and part, of the units on which the part would show.
    """

    zeros: Tensor
    """Zeros at units that the input leaves off."""
    fired: Tensor
    """How many of these are expected to have fired in mid-training."""
    units: Tensor
    small: Tensor
    """Entries in a band above the zeros, which show how many zeros chance makes."""
    off: Tensor
    """Units that the input leaves off."""
    off_small: Tensor
    """Small entries among these."""
    on: Tensor
    """Units that the input turned on before training."""
    on_zeros: Tensor
    """Zeros among these."""
    on_small: Tensor
    """Small entries among these."""


@dataclass(frozen=True, kw_only=True)
class ClassifiedUnits:
    """The entries of rows, and what the inputs of the rows say about them."""

    size: Float[Tensor, "row unit"]
    width: Float[Tensor, "row 1"]
    """Size up to which an entry is zero."""
    band: Float[Tensor, "row 1"]
    """Size up to which an entry is small."""
    is_fitted: Bool[Tensor, " row"]
    """Rows whose own input contradicts them, so that it was replaced by one fitted to their zeros."""
    is_senseless: Bool[Tensor, " row"]
    """Rows that even such an input contradicts."""
    counted: UnitCounts
    """Per row and unit."""


def may_contain(
    problem: RowProblem,
    rows: Float[Tensor, "row rank"],
    codes: Float[Tensor, "row rank"],
    *,
    is_strict: bool = False,
    tick: Tick = no_tick,
) -> Bool[Tensor, "row row"]:
    """Return for each row which other rows may be mixed into it; the error rate is the probability of missing a part.

    Only zeros on units that the input of a row leaves off count: the difference of two rows whose entries have the same
    ratio on all units that both inputs fire is zero there as well.

    Args:
        problem: what the rows are rows of.
        rows: the rows.
        codes: their inputs, in coordinates of the basis.
        is_strict: for the certificate: only noise makes zeros inexact, and not also the search, and a row that no input
            explains may contain all others.
        tick: called before each row; may raise to stop.
    """
    count = len(rows)
    if count < 2:
        return torch.zeros(count, count, dtype=torch.bool, device=rows.device)
    units = _classify(problem, rows, codes, is_strict)
    parts, covered = _count_per_part(problem, units, tick)
    if problem.forms is None:
        refuted = torch.zeros(count, count, dtype=torch.bool, device=rows.device)
    else:
        refuted = refute_parts(problem, rows, units.counted.zeros > 0)
    # The other rows in the order in which they can be parts; the parts before one in this order can force a zero each.
    order = (parts.zeros.fill_diagonal_(math.inf) + problem.units * refuted).argsort(dim=1)[:, :-1]
    forced = torch.arange(1, count, device=rows.device)
    parts = UnitCounts(*(part.gather(1, order) for part in parts))
    every = UnitCounts(*(each.sum(dim=1, keepdim=True) for each in units.counted))
    # What is known of one part, or of all units where that says more.
    known = UnitCounts(
        *(torch.where(covered > parts.zeros, all_, part) for all_, part in zip(every, parts, strict=True))
    )
    zeros = torch.maximum(parts.zeros, covered)
    beyond, share = zeros - forced, units.width / 2 / (units.band - units.width)
    clash = _clash_rate(parts, every, share, units.is_fitted)

    def allow_before(tail: Tensor) -> Tensor:
        """If a row can be a part, so can all rows before it, which have fewer zeros against them.

        All numbers of parts are tried, so their probabilities are divided by weights that sum to one.
        """
        tail = tail.masked_fill(refuted.gather(1, order), -math.inf)
        tail = (tail + 2 * forced.log() + math.log(math.pi**2 / 6)).flip(1).cummax(dim=1).values.flip(1)
        return torch.full((count, count), -math.inf).to(rows).scatter_(1, order, tail)

    log_p = allow_before(_log_tail(beyond, known.units, torch.maximum((known.small + 1) * share, clash * known.units)))
    if count == problem.rank:  # all rows together say where their inputs are
        by_chance = torch.maximum((known.off_small + 1) * share, clash * known.off)
        coincidence = _log_tail(beyond, known.off, by_chance)
        # A single part cancels nowhere by itself. Several may cancel each other on as many units as they can be chosen
        # for, and on one more a unit fired, or that is chance as well.
        needed = torch.where(forced == 1, zeros, (beyond >= 0).to(rows))
        log_p = _judge(log_p, allow_before(coincidence + _log_tail(needed, zeros, known.fired + by_chance)))
    may: Tensor = (log_p > math.log(problem.certificate.error_rate / count)) | units.is_senseless[:, None]
    return may.fill_diagonal_(False)


def _classify(
    problem: RowProblem, rows: Float[Tensor, "row rank"], codes: Float[Tensor, "row rank"], is_strict: bool
) -> ClassifiedUnits:
    """Classify the entries of rows by their size, and units by whether inputs turn them on."""
    size, informative = problem.normalise(rows).abs(), problem.informative.bool()
    width = zero_width(problem, rows)
    if is_strict and not has_decayed(problem):
        widest = problem.certificate.clean * problem.deviations * problem.noise_width(rows)[:, None]
        width = torch.minimum(width, widest)
    is_fitted = _is_contradicted(problem, size, width, codes) & is_strict
    if bool(is_fitted.any()):  # an input that its own row refutes does not say where the row should be zero
        codes = codes.clone()
        codes[is_fitted] = fit_codes(problem, rows[is_fitted])
    before, after = (codes @ gate.T for gate in problem.gates)
    is_off, was_on = informative & (before <= 0) & (after <= 0), informative & (before > 0)
    firing = firing_probability(problem, before, after, codes.norm(dim=1))
    firing = torch.where(problem.gated.bool(), firing, 1.0)
    is_zero, band = (size <= width / 2) & informative, (3 * width).clamp(min=problem.certificate.density_band)
    zeros = is_zero & is_off
    small, every = (size > width) & (size <= band) & informative, informative.expand_as(size)
    counted = (zeros, zeros * firing, every, small, is_off, small & is_off, was_on, was_on & is_zero, was_on & small)
    return ClassifiedUnits(
        size=size,
        width=width,
        band=band,
        is_fitted=is_fitted,
        is_senseless=is_fitted & _is_contradicted(problem, size, width, codes),
        counted=UnitCounts(*(each.to(rows) for each in counted)),
    )


def _count_per_part(
    problem: RowProblem, units: ClassifiedUnits, tick: Tick
) -> tuple[UnitCounts, Float[Tensor, "row number"]]:
    """Count the units on which a part would show, for each row and each other row as its part.

    Returns:
        The counts, and for each number of parts how many zeros of a row some of any so many other rows would show at.
    """
    count, informative = len(units.size), problem.informative.bool()
    # Of a part that matters, these entries show above the zeros of the row.
    least = (units.width / problem.certificate.smallest_part).clamp(min=problem.certificate.clear_entry)
    counted = torch.stack(units.counted)
    parts, covered = counted.new_zeros(len(counted), count, count), counted.new_zeros(count, count - 1)
    for row in range(count):
        tick()
        nonzero = ((units.size > least[row]) & informative).to(counted)
        parts[:, row] = counted[:, row] @ nonzero.T
        # Fewer than f other rows are zero there.
        left_off = (count - 1 - nonzero.sum(dim=0) + nonzero[row]).long()
        covered[row] = torch.bincount(left_off, units.counted.zeros[row], minlength=count)[: count - 1].cumsum(dim=0)
    return UnitCounts(*parts), covered


def _clash_rate(
    parts: UnitCounts, every: UnitCounts, share: Float[Tensor, "row 1"], is_fitted: Bool[Tensor, " row"]
) -> Float[Tensor, "row part"]:
    """Return how often zeros of a mixture are one coincidence, because its parts have the same ratio on many units.

    Rows of near-duplicates have. How often this happens shows where the input turned units on: there the row of one
    input is zero by chance, or because the input was used late. That leaves such zeros where the part is zero too;
    their rate there is deducted.
    """
    late_rate = (every.on_zeros - parts.on_zeros - 1).clamp(min=0) / (every.on - parts.on + 1)
    late_rate = late_rate.masked_fill(is_fitted[:, None], 0.0)  # a fitted input does not say which units were on
    expected = 1 + (parts.on_small + 1) * share + late_rate * parts.on
    clash: Tensor = (parts.on_zeros - expected).clamp(min=0) / (parts.on + 1)
    return clash


def _is_contradicted(
    problem: RowProblem,
    size: Float[Tensor, "row unit"],
    width: Float[Tensor, "row 1"],
    codes: Float[Tensor, "row rank"],
) -> Bool[Tensor, " row"]:
    """Return which rows have more zeros at units that their inputs turn on at both ends than chance makes.

    Entries that noise may have hidden are forgiven: as many as lie in the equally wide band above the zeros.
    """
    is_on = (codes @ problem.gates[0].T > 0) & (codes @ problem.gates[1].T > 0) & problem.informative.bool()
    hidden = (is_on & (size > width) & (size <= 2 * width)).sum(dim=1)
    contradicting = (is_on & (size <= width)).sum(dim=1) - hidden
    return contradicting > problem.certificate.allowed_contradictions(problem.units)


def _log_tail(hits: Tensor, trials: Tensor, expected: Tensor) -> Tensor:
    """Bound the log probability of so many hits where a number is expected."""
    trials = trials.clamp(min=1)
    chance = (expected / trials).clamp(1e-12, 1 - 1e-9)
    tail = bound_log_tail(hits.clamp(min=0).cpu().numpy(), trials.cpu().numpy(), chance.cpu().numpy())
    return torch.as_tensor(tail, device=hits.device).to(hits)


def _judge(any_input: Float[Tensor, "row row"], right_input: Float[Tensor, "row row"]) -> Float[Tensor, "row row"]:
    """Bound the log probability that each row has each part.

    Row ``j`` has the part ``l``. Either the input of ``j`` is right, or a row ``k`` has the part ``j``. Then the input
    of ``k`` is right, or some row has the part ``k``: a third one, or ``j`` itself besides ``l``.

    Args:
        any_input: log probabilities of the coincidences, wherever the inputs are.
        right_input: log probabilities for rows whose input is right.
    """
    best = any_input.topk(2, dim=0)
    index = torch.arange(len(any_input), device=any_input.device)
    # Entry (k, j): the best of the rows other than j that have the part k.
    third = torch.where(best.indices[0][:, None] == index, best.values[1][:, None], best.values[0][:, None])
    wrong_input = torch.maximum(right_input, any_input + third).amax(dim=0)
    log_p = torch.maximum(right_input, any_input + wrong_input[:, None])
    for row in index.tolist():
        parts = any_input[row]
        both = torch.minimum(parts[:, None], parts) + any_input[:, row]
        log_p[row] = torch.maximum(log_p[row], both.amax(dim=1))
    return log_p


def has_decayed(problem: RowProblem) -> bool:
    """Return whether gradients at several weights were summed of which one is known, as in an optimiser's state."""
    return not problem.gates_are_exact and torch.equal(problem.before, problem.after)
