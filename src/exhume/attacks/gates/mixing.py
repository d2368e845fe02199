"""Decide which rows may be mixed into which: a row that is found may be the true one plus parts of others.

A mixture of ``g`` rows is zero on their common zeros, on up to ``g - 1`` units that its coefficients are chosen for,
and by chance. So the zeros that a part does not share speak against it: beyond those that coefficients can force, each
is a coincidence. How unlikely that is depends on where the inputs are. A part of another row in row ``j`` moves the
input of the part, and not that of ``j``. So there are two cases:

- The input of ``j`` is right. Then units that it leaves off must have fired in mid-training and cancel the parts there.
- The input of ``j`` is wrong. Then ``j`` is itself a part of some row, whose own zeros speak against that.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.gates.firing import REACH, UNFORESEEN, firing_distance
from exhume.attacks.gates.fit import fit_codes
from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.squares import refute_parts
from exhume.attacks.gates.zeros import zero_width
from exhume.core.chance import bound_log_tail

SMALLEST_PART = 0.1
"""Smallest part of a mixture that its zeros must rule out, relative to the whole; matters where noise is large."""
LEAST_NONZERO = 1e-2
"""Size of an entry from which on it counts against a mixture, in root mean squares of its row. Where noise is small,
parts down to the width of a zero over this are ruled out: with 1e-4 a part of 1 % in a buffer went unnoticed."""
CONTRADICTED = 10.0
"""Number of zeros at units that an input leaves off that are outweighed by one at a unit that it turns on, for a row
that no input explains. The difference of the rows of two nearly equal inputs is zero where both fire: whatever the
input, it leaves some of these units off and turns others on.
"""
SENSELESS = 0.05
"""Fraction of the zeros of a row at units that even an input fitted to them turns on, from which on it is the row of no
input, and may contain any: the difference of two rows with one ratio is zero at most units that both inputs fire.
Measured: 0.10 to 0.51 in four such rows, and up to 0.02 in rows of inputs in trainings."""
CLEAN = 3.0
"""Largest scatter of the zeros of a row, relative to noise, at which nothing else is in it. Measured in weight changes
and gradients: up to 2.4 in ordinary networks; 14 to 300 where an input lies on the line between two others and is
nearly equal to one of them. In an optimiser's state, what fired long ago has decayed to any size."""


def may_contain(
    problem: RowProblem,
    rows: Float[Tensor, "row rank"],
    codes: Float[Tensor, "row rank"],
    error_rate: float,
    *,
    is_strict: bool = False,
) -> Bool[Tensor, "row row"]:
    """Return for each row which other rows may be mixed into it.

    Only zeros on units that the input of a row leaves off count: the difference of two rows whose entries have the same
    ratio on all units that both inputs fire is zero there as well.

    Args:
        problem: what the rows are rows of.
        rows: the rows.
        codes: their inputs, in coordinates of the basis.
        error_rate: the probability of missing a part.
        is_strict: for the certificate: only noise makes zeros inexact, and not also the search, and a row that no input
            explains may contain all others.
    """
    count = len(rows)
    if count < 2:
        return torch.zeros(count, count, dtype=torch.bool, device=rows.device)
    size, informative = problem.normalise(rows).abs(), problem.informative.bool()
    width = zero_width(problem, rows)
    if is_strict and not has_decayed(problem):
        width = torch.minimum(width, CLEAN * problem.certificate.zero_width * problem.noise_width(rows)[:, None])
    is_zero = (size <= width) & informative
    is_fitted = _contradict(problem, is_zero, codes)[1] & is_strict
    if bool(is_fitted.any()):  # an input that its own row refutes does not say where the row should be zero
        codes = codes.clone()
        codes[is_fitted] = fit_codes(problem, rows[is_fitted])
    before, after = (codes @ gate.T for gate in problem.gates)
    is_off = (informative & (before <= 0) & (after <= 0)).to(rows)
    zeros = (size <= width / 2) * is_off
    contradicting, is_refuted = _contradict(problem, is_zero, codes)
    is_senseless = is_strict & is_refuted & (contradicting.sum(dim=1) > SENSELESS * is_zero.sum(dim=1))
    own_zeros = zeros - CONTRADICTED * contradicting * (is_refuted[:, None] & is_strict)
    firing = torch.exp(-firing_distance(problem, before, after, codes.norm(dim=1)) / REACH) + UNFORESEEN
    firing = torch.where(problem.gated.bool(), firing, 1.0)
    band = (3 * width).clamp(min=problem.certificate.density_band)
    small = ((size > width) & (size <= band) & informative).to(rows)
    # Of a part that is large enough, these entries show above the zeros of the row.
    least = (width / SMALLEST_PART).clamp(min=LEAST_NONZERO)
    every = torch.ones_like(size) * informative
    was_on = ((before > 0) & informative).to(rows)
    counted = torch.stack(  # per unit
        [own_zeros, zeros * firing, every, small, is_off, small * is_off, was_on, was_on * is_zero, was_on * small]
    )
    parts, covered = torch.zeros(len(counted), count, count).to(rows), torch.zeros(count, count - 1).to(rows)
    for row in range(count):
        nonzero = ((size > least[row]) & informative).to(rows)
        parts[:, row] = counted[:, row] @ nonzero.T
        # Zeros at which some of any f other rows is not zero, for every f: fewer than f of them are zero there.
        left_off = (count - 1 - nonzero.sum(dim=0) + nonzero[row]).long()
        covered[row] = torch.bincount(left_off, own_zeros[row], minlength=count)[: count - 1].cumsum(dim=0)
    # The other rows in the order in which they can be parts; the parts before one in this order can force a zero each.
    parts[0].clamp_(min=0)
    refuted = parts[0] < 0 if problem.forms is None else refute_parts(problem, rows, zeros > 0)
    order = (parts[0].fill_diagonal_(math.inf) + problem.units * refuted).argsort(dim=1)[:, :-1]
    forced = torch.arange(1, count, device=rows.device)
    parts = torch.stack([part.gather(1, order) for part in parts])
    # What is known of one part, or of all units where that says more.
    known = torch.where(covered > parts[0], counted.sum(dim=2)[:, :, None], parts)
    own, fired, units, nearby, off, off_nearby = known[:6]
    own = torch.maximum(parts[0], covered)
    beyond, share = own - forced, width / 2 / (band - width)
    # Rows of near-duplicates have the same ratio on many units, so that many zeros of a mixture are one coincidence.
    # How often this happens shows where the input turned units on: there the row of one input is zero by chance, or
    # because the input was used late. That leaves such zeros where the part is zero too; their rate there is deducted.
    on, on_zeros, on_nearby = parts[6:]
    all_on, all_on_zeros = counted[6:8].sum(dim=2)[..., None]
    late_rate = (all_on_zeros - on_zeros - 1).clamp(min=0) / (all_on - on + 1)
    late_rate = late_rate.masked_fill(is_fitted[:, None], 0.0)  # a fitted input does not say which units were on
    expected = 1 + 2 * (on_nearby + 1) * share + late_rate * on
    clash = (on_zeros - expected).clamp(min=0) / (on + 1)

    def allow_before(tail: Tensor) -> Tensor:
        """If a row can be a part, so can all rows before it, which have fewer zeros against them.

        All numbers of parts are tried, so their probabilities are divided by weights that sum to one.
        """
        tail = tail.masked_fill(refuted.gather(1, order), -math.inf)
        tail = (tail + 2 * forced.log() + math.log(math.pi**2 / 6)).flip(1).cummax(dim=1).values.flip(1)
        return torch.full((count, count), -math.inf).to(rows).scatter_(1, order, tail)

    log_p = allow_before(_log_tail(beyond, units, torch.maximum((nearby + 1) * share, clash * units)))
    if count == problem.rank:  # all rows together say where their inputs are
        by_chance = torch.maximum((off_nearby + 1) * share, clash * off)
        coincidence = _log_tail(beyond, off, by_chance)
        # A single part cancels nowhere by itself. Several may cancel each other on as many units as they can be chosen
        # for, and on one more a unit fired, or that is chance as well.
        needed = torch.where(forced == 1, own, (beyond >= 0).to(rows))
        log_p = _judge(log_p, allow_before(coincidence + _log_tail(needed, own, fired + by_chance)))
    may: Tensor = (log_p > math.log(error_rate / count)) | is_senseless[:, None]
    return may.fill_diagonal_(False)


def _contradict(
    problem: RowProblem, zeros: Bool[Tensor, "row unit"], codes: Float[Tensor, "row rank"]
) -> tuple[Bool[Tensor, "row unit"], Bool[Tensor, " row"]]:
    """Return the zeros at units that inputs turn on at both ends, and for which rows chance does not make as many."""
    contradicting = zeros & (codes @ problem.gates[0].T > 0) & (codes @ problem.gates[1].T > 0)
    return contradicting, contradicting.sum(dim=1) > problem.certificate.allowed_contradictions(problem.units)


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
