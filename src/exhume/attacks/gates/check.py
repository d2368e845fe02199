"""Check rows against the inputs they imply, and say how unlikely the agreement is by chance.

All rows together determine every input (the columns of ``Z Γ⁺``), without looking at any row's zeros. So the gates of
the input that belongs to a row are a prediction of where that row is zero, and the prediction can fail. The null is
that the zeros of a row have nothing to do with the weights: then each unit agrees with the prediction by chance, and
the chance that any input of the remaining freedom agrees as well is bounded by counting halfspace patterns (Cover
1965). That a row is no generic vector of the row space in the first place follows from counting its zeros, and that it
is no mixture of the rows of similar inputs from taking every other row out of it (:func:`reduced`).
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp, xlogy
from torch import Tensor

from exhume.attacks.gates.search import RowProblem, fit_halfspaces, off_probability, oriented, rows_of, smallest_on

SINGLE_INPUT = 0.82
"""The least agreement of a row with its input. True rows reach 0.98 to 1 after lazy training and 0.85 to 0.97 after a
wild one (what they miss are units that fired in the middle of training only); chance reaches 0.6."""
COVERED = 0.7
"""The least coverage of a row that is taken for a single input's. Rows that are still on their way stay below."""
EXACT, FORGIVEN = 0.004, 3
"""The largest fraction of contradictions of an input that is exact, and the number that chance alone may bring."""
IMPLAUSIBLE = 0.03
"""The fraction of contradictions beyond which a row is wrong itself, and not only read out beside a wrong one."""
PRECISE = 0.02
"""The largest error, in units of the input, that noise may leave in an input that is exact."""
NOISE_TAIL = 5.5
"""How many standard deviations the largest of an input's values may be off."""
CLOSE = 0.8
"""The least cosine of a row that replaces another."""
CULPRIT_GAIN = 0.003
"""By how much the mean agreement of the others must rise for a row to be left out."""
SOLID = 0.05
"""The size of an entry, in units of its row's root mean square, from which on a ratio to it means something."""
LEAST_GAIN = 4
"""How many units at least must share a ratio before a row counts as mixed."""
OWN_ZEROS = 0.016
"""The least fraction of units on which a row is zero and another is not, for the two to count as told apart."""


@dataclass(frozen=True, kw_only=True)
class Checked:
    """Rows with the inputs read out for them, and how well the two agree."""

    rows: Float[Tensor, "row rank"]
    inputs: Float[Tensor, "row value"]
    """Scaled to a constant of 1 where the layer has a bias."""
    agreement: Float[Tensor, " row"]
    """The fraction of informative units on which the input's gates and the row's zeros agree."""
    log_p: Float[Tensor, " row"]
    """The natural logarithm of the p-value of that agreement, for one row tried."""
    contradictions: Float[Tensor, " row"]
    """The fraction of units that contradict the pair of row and input outright."""
    precision: Float[Tensor, " row"]
    """How far noise of the weights may move a value of the input."""
    is_complete: bool
    """Whether all rows are there, so that every input is determined and not fitted."""

    units: int
    """How many units had a say."""

    @property
    def is_exact(self) -> Bool[Tensor, " row"]:
        """Which inputs hardly any unit contradicts."""
        return self.contradictions * self.units <= max(EXACT * self.units, FORGIVEN) + 0.5

    @property
    def is_plausible(self) -> Bool[Tensor, " row"]:
        """Which rows no wrong neighbour alone makes look as bad as they do."""
        return self.is_single & (self.contradictions <= IMPLAUSIBLE)

    @property
    def is_single(self) -> Bool[Tensor, " row"]:
        """Which rows agree as only the row of one input does."""
        return self.agreement >= SINGLE_INPUT


def missing_directions(
    problem: RowProblem, rows: Float[Tensor, "row rank"]
) -> tuple[Float[Tensor, "value free"], Float[Tensor, " free"]]:
    """Return the directions that only inputs of rows not yet found can span, with their strengths.

    ``Z (I − P)``, with ``P`` the projector on the found rows, holds no input whose row was found.
    """
    if len(rows) == 0:
        return problem.basis, problem.strengths
    found = torch.linalg.qr(rows.T).Q
    remaining = problem.strengths[:, None] * (torch.eye(problem.rank).to(found) - found @ found.T)
    left, strengths, _ = torch.linalg.svd(remaining)
    free = problem.rank - len(rows)
    return problem.basis @ left[:, :free], strengths[:free]


def zero_width(problem: RowProblem, rows: Float[Tensor, "row rank"]) -> Float[Tensor, "row 1"]:
    """Return below which size an entry of a normalised row counts as zero: what the measured noise makes of zero."""
    return (6.0 * problem.noise_width(rows)).clamp(min=1e-3)[:, None]


def agreement(
    problem: RowProblem, rows: Float[Tensor, "row rank"], inputs: Float[Tensor, "row value"]
) -> Float[Tensor, " row"]:
    """Return on which fraction of the informative units an input's gates tell where its row is zero.

    A unit is predicted to be off when it is off at both ends of training. An entry that is on but drowned in the noise
    is not held against a row: as many misses are forgiven as entries lie in the equally wide band above the noise.
    """
    predicted = torch.maximum(inputs @ problem.before.T, inputs @ problem.after.T) > 0
    size, width = problem.normalised(rows).abs(), zero_width(problem, rows)
    counted = problem.informative.bool()
    hits = ((predicted == (size > width)) & counted).sum(dim=1)
    drowned = (predicted & (size <= width) & counted).sum(dim=1)
    band = ((size > width) & (size <= 2 * width) & counted).sum(dim=1)
    return (hits + torch.minimum(drowned, band)) / problem.units


def contradictions(
    problem: RowProblem, rows: Float[Tensor, "row rank"], inputs: Float[Tensor, "row value"]
) -> Float[Tensor, " row"]:
    """Return the fraction of units on which a row is zero although its input has them on at both ends of training.

    Such a unit was moved at the very first step, so a true row with its exact input has none; an input that is a little
    off has some. Entries that noise may have drowned are forgiven as in :func:`agreement`.
    """
    on = torch.minimum(inputs @ problem.before.T, inputs @ problem.after.T) > 0
    size, width = problem.normalised(rows).abs(), zero_width(problem, rows)
    band = ((size > width) & (size <= 2 * width) & problem.informative.bool()).sum(dim=1)
    return ((on & shows_zero(problem, rows)).sum(dim=1) - band).clamp(min=0) / problem.units


def coverage(
    problem: RowProblem, rows: Float[Tensor, "row rank"], inputs: Float[Tensor, "row value"]
) -> Float[Tensor, " row"]:
    """Return of the units that an input leaves off at both ends of training, the fraction on which its row is zero."""
    off = (torch.maximum(inputs @ problem.before.T, inputs @ problem.after.T) < 0) & problem.informative.bool()
    return (off & shows_zero(problem, rows)).sum(dim=1) / off.sum(dim=1).clamp(min=1)


def fitted_inputs(
    problem: RowProblem,
    rows: Float[Tensor, "row rank"],
    directions: Float[Tensor, "value free"],
    base: Float[Tensor, "row value"] | None = None,
) -> Float[Tensor, "row value"]:
    """Fit to the zeros of each row the input in the span of ``directions``, added to ``base`` where that is known."""
    features = problem.weights @ directions
    free = directions.shape[1]
    size = features.pow(2).mean().sqrt() * free**0.5
    features = features / size
    on = (1 - off_probability(problem.normalised(rows), 0.5, zero_width(problem, rows))) * problem.informative
    start = torch.zeros(len(rows), problem.basis.shape[0]).to(features) if base is None else base
    known = start @ problem.weights.T
    unit = known.pow(2).mean(dim=1, keepdim=True).sqrt().clamp(min=1e-6)
    codes = torch.zeros(len(rows), free).to(features)
    # Few free directions are determined by many units and need no holding back.
    ridges = (1.0, 0.3, 0.1, 0.03) if 20 * free > problem.units else (1.0, 0.1, 1e-2, 1e-3)
    # What is known may be far off where rows are missing, so it is believed little at first.
    steepness = (20.0,) * 4 if base is None else (2.0, 5.0, 10.0, 20.0)
    scale = steepness[0] / unit
    for ridge, steep in zip(ridges, steepness, strict=True):
        codes, scale = codes * (steep / unit) / scale, steep / unit
        codes = fit_halfspaces(features, on, codes, ridge, steps=3, base=known * scale)
    return oriented(problem, start + (codes / size / scale) @ directions.T)


def check(problem: RowProblem, rows: Float[Tensor, "row rank"]) -> Checked:
    """Read out the input of each row from all of them, and check one against the other.

    With rows missing, what they leave open of an input is fitted to the row's own zeros; the p-value pays for it.
    """
    change = problem.basis * problem.strengths  # Z in coordinates of the row space
    readers = torch.linalg.pinv(rows)
    inputs = faced(problem, rows, (change @ readers).T)
    constant = inputs[:, -1].abs().clamp(min=1e-30) if problem.has_bias else torch.ones_like(inputs[:, 0])
    directions, _ = missing_directions(problem, rows)
    free = directions.shape[1]
    if free:
        # What missing rows leave in an input may outweigh its constant, so either sign is tried.
        upright, turned = (fitted_inputs(problem, rows, directions, sign * inputs) for sign in (1, -1))
        better = agreement(problem, rows, upright) >= agreement(problem, rows, turned)
        inputs = torch.where(better[:, None], upright, turned)
    agreed = agreement(problem, rows, inputs)
    return Checked(
        rows=rows,
        inputs=standardised(problem, inputs),
        agreement=agreed,
        log_p=log_p_value(problem, rows, agreed, free),
        contradictions=contradictions(problem, rows, inputs),
        precision=NOISE_TAIL * problem.noise * readers.norm(dim=0) / constant,
        is_complete=free == 0,
        units=problem.units,
    )


def faced(
    problem: RowProblem, rows: Float[Tensor, "row rank"], inputs: Float[Tensor, "row value"]
) -> Float[Tensor, "row value"]:
    """Choose the sign of inputs: by their constant, or without a bias so that they are off where their row is zero."""
    if problem.has_bias:
        return oriented(problem, inputs)
    margins = (inputs @ problem.weights.T) * shows_zero(problem, rows).repeat(1, 2)
    return torch.where(margins.sum(dim=1, keepdim=True) > 0, -inputs, inputs)


def refined(
    problem: RowProblem, rows: Float[Tensor, "row rank"], generator: torch.Generator
) -> Float[Tensor, "row rank"]:
    """Replace rows by sparser ones close to them, found from the inputs that all of them together imply.

    Rows that share nearly all their zeros with another are tried harder.
    """
    if len(rows) == 0:
        return rows
    rows = _sparser(problem, rows, torch.arange(len(rows), device=rows.device), generator, tries=6)
    alike = entangled(problem, rows).nonzero()[:, 0]
    return _sparser(problem, rows, alike, generator, tries=24) if len(alike) else rows


def _sparser(problem: RowProblem, rows: Tensor, which: Tensor, generator: torch.Generator, tries: int) -> Tensor:
    proposals = sharpen(problem, rows_of(problem, check(problem, rows).inputs[which], generator, tries=tries))
    proposals = proposals.reshape(len(which), -1, problem.rank)
    cosines = (proposals @ rows.T).abs()
    to_own = cosines.gather(2, which[:, None, None].expand(-1, proposals.shape[1], 1))[..., 0]
    # Closest to the row it replaces, or a sparser near-duplicate would take its place.
    close = (to_own >= cosines.amax(dim=2)) & (to_own > CLOSE)
    zeros = torch.stack([shows_zero(problem, each).sum(dim=1) for each in proposals.unbind(1)], dim=1) * close
    best = zeros.argmax(dim=1)
    at = torch.arange(len(which), device=rows.device)
    is_better = zeros[at, best] > shows_zero(problem, rows[which]).sum(dim=1)
    return rows.index_copy(0, which, torch.where(is_better[:, None], proposals[at, best], rows[which]))


def without_culprits(
    problem: RowProblem, rows: Float[Tensor, "row rank"], most: int, suspects: int = 24
) -> Float[Tensor, "kept rank"]:
    """Leave out rows, at most so many, without which the others agree better with their inputs.

    One wrong row spoils the read-out of others, and so does the direction it takes from the missing ones. Suspects are
    the rows with the fewest zeros and those that agree least.
    """
    for _ in range(min(most, len(rows) - 1)):
        checked = check(problem, rows)
        if bool((checked.is_single & checked.is_exact).all()):
            break
        fewest = shows_zero(problem, rows).sum(dim=1).argsort()[: suspects // 2]
        worst = checked.agreement.argsort()[: suspects // 2]
        gains = {}
        for index in set(fewest.tolist()) | set(worst.tolist()):
            rest = torch.cat([rows[:index], rows[index + 1 :]])
            others = torch.cat([checked.agreement[:index], checked.agreement[index + 1 :]])
            gains[index] = float((check(problem, rest).agreement - others).mean())
        culprit = max(gains, key=lambda index: gains[index])
        if gains[culprit] < CULPRIT_GAIN:
            break
        rows = torch.cat([rows[:culprit], rows[culprit + 1 :]])
    return rows


def standardised(problem: RowProblem, inputs: Float[Tensor, "row value"]) -> Float[Tensor, "row value"]:
    """Divide by the constant last value, which fixes sign and scale, where the layer has a bias."""
    if not problem.has_bias:
        return inputs
    last = inputs[:, -1:]
    return inputs / torch.where(last.abs() < 1e-30, torch.full_like(last, 1e-30), last)


def shows_zero(problem: RowProblem, rows: Float[Tensor, "row rank"]) -> Bool[Tensor, "row unit"]:
    """Return on which informative units a row is zero but for noise."""
    return (problem.normalised(rows).abs() <= zero_width(problem, rows)) & problem.informative.bool()


def nested(problem: RowProblem, rows: Float[Tensor, "row rank"], least: float = OWN_ZEROS) -> Bool[Tensor, "row row"]:
    """Tell for which pairs all zeros of the first but a fraction ``least`` of the units are zeros of the second."""
    zeros = shows_zero(problem, rows).to(rows)
    own = zeros @ (problem.informative - zeros).T
    return (own < least * problem.units) & ~torch.eye(len(rows), dtype=torch.bool, device=rows.device)


def entangled(problem: RowProblem, rows: Float[Tensor, "row rank"], least: float = OWN_ZEROS) -> Bool[Tensor, " row"]:
    """Tell which rows may be mixed with another: nearly all zeros of the one are zeros of the other.

    A mixture is zero only where both its parts are, and spoils the input read out for the other part. The rows of
    near-duplicate inputs look the same, so neither of such a pair counts as proven.
    """
    pairs = nested(problem, rows, least)
    return pairs.any(dim=0) | pairs.any(dim=1)


def log_p_generic(problem: RowProblem, rows: Float[Tensor, "row rank"]) -> Float[Tensor, " row"]:
    """Bound the chance that a generic vector of the row space has as many zeros as each row.

    Any ``rank - 1`` zeros can be forced; every further one is a coincidence whose chance is read off the entries just
    outside the zeros. The union bound pays for the choice of the forced ones.
    """
    size, width = problem.normalised(rows).abs(), zero_width(problem, rows)
    counted = problem.informative.bool()
    zeros = shows_zero(problem, rows).sum(dim=1)
    nearby = ((size > width) & (size <= 2 * width) & counted).sum(dim=1)
    chance = ((nearby + 1).double() / problem.units).clamp(max=1 - 1e-9).cpu().numpy()
    forced = min(problem.rank - 1, problem.units)
    beyond = (zeros - forced).clamp(min=0).double().cpu().numpy()
    tail = _log_tail(beyond, max(problem.units - forced, 1), chance)
    choices = gammaln(problem.units + 1) - gammaln(forced + 1) - gammaln(problem.units - forced + 1)
    return torch.as_tensor(tail + choices, dtype=torch.float64).clamp(max=0.0)


def log_p_value(
    problem: RowProblem, rows: Float[Tensor, "row rank"], agreed: Float[Tensor, " row"], free: int
) -> Float[Tensor, " row"]:
    """Bound the chance of an agreement for a row whose zeros have nothing to do with the weights.

    By the union bound over all patterns that halfspaces with ``free`` free directions can make at both ends.
    """
    shown = problem.normalised(rows).abs() > zero_width(problem, rows)
    on = (shown * problem.informative).sum(dim=1) / problem.units
    chance = torch.maximum(on, 1 - on).clamp(max=1 - 1e-9).cpu().numpy()
    hits = (agreed.double() * problem.units).round().cpu().numpy()
    tail = _log_tail(hits, problem.units, chance)
    patterns = log_halfspace_patterns(2 * problem.units, free)
    return torch.as_tensor(tail + patterns, dtype=torch.float64).clamp(max=0.0)


def _log_tail(hits: NDArray[np.float64], trials: int, chance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bound the logarithm of the chance of at least so many hits in so many trials (Chernoff, Hoeffding 1963)."""
    rate = np.clip(hits / trials, chance, 1.0)
    divergence = xlogy(rate, rate / chance) + xlogy(1 - rate, (1 - rate) / (1 - chance))
    bound: NDArray[np.float64] = -trials * divergence
    return bound


def log_halfspace_patterns(points: int, free: int) -> float:
    """Return the logarithm of how many on/off patterns of points a halfspace with free directions can make.

    Cover (1965): ``2 Σ_{k<n} C(points − 1, k)`` for ``n`` directions; one pattern when nothing is free.

    >>> round(math.exp(log_halfspace_patterns(4, 2)))
    8
    """
    if free == 0:
        return 0.0
    ks = torch.arange(min(free, points)).numpy()
    terms = gammaln(points) - gammaln(ks + 1) - gammaln(points - ks)
    return math.log(2.0) + float(logsumexp(terms))


def sharpen(problem: RowProblem, rows: Float[Tensor, "row rank"], steps: int = 14) -> Float[Tensor, "row rank"]:
    """Bring rows to the precision of the weights: exact zeros where they are zero but for noise.

    Least squares re-weighted as for a count of non-zeros, with a width that falls to the noise floor.
    """
    for step in range(steps):
        width = (2.0 * problem.noise_width(rows)).clamp(min=1e-2 * 0.5**step, max=1.0)[:, None]
        normalised = problem.normalised(rows)
        rows = smallest_on(problem, rows, problem.informative / (normalised.pow(2) + width.pow(2)), 2)
    return rows


def reduced(
    problem: RowProblem, rows: Float[Tensor, "row rank"], others: Float[Tensor, "other rank"], nearest: int = 8
) -> Float[Tensor, "row rank"]:
    """Take other rows out of rows that mix them in.

    Where a mixture ``a·γ_1 + b·γ_2`` is not zero and ``γ_1`` is, its ratio to ``γ_2`` is exactly ``b``: a value that
    many units share. A single input's row has no such ratio to any other row. Only the most similar rows are tried.
    """
    if len(rows) == 0 or len(others) == 0:
        return rows
    similarity = (rows @ others.T).abs()
    similarity[similarity > 1 - 1e-6] = 0  # a row is not reduced by itself
    for other in similarity.topk(min(nearest, len(others)), dim=1).indices.T:
        rows = _reduced_by(problem, rows, others[other])
    return rows


def _reduced_by(problem: RowProblem, rows: Tensor, others: Tensor) -> Tensor:
    """Subtract from each row the multiple of its other row that leaves clearly more zeros, where there is one."""
    entries, divisors = problem.normalised(rows), problem.normalised(others)
    noise = (3.0 * (problem.noise_width(rows) + problem.noise_width(others))).clamp(min=1e-6)[:, None]
    usable = (divisors.abs() > SOLID) & (entries.abs() > zero_width(problem, rows)) & problem.informative.bool()
    # Unusable units get ratios far apart from each other, so that no two of them ever agree.
    apart = 1e6 * (1 + torch.arange(entries.shape[1], device=rows.device))
    ratios = torch.where(usable, entries / torch.where(usable, divisors, torch.ones_like(divisors)), apart)
    ratios = ratios.sort(dim=1).values
    spans = ratios[:, LEAST_GAIN - 1 :] - ratios[:, : ratios.shape[1] - LEAST_GAIN + 1]
    at = spans.argmin(dim=1, keepdim=True)
    shared = ratios.gather(1, at + LEAST_GAIN // 2)
    tight = spans.gather(1, at) < 2.0 * noise / SOLID
    scale = (rows @ problem.rows).norm(dim=1, keepdim=True) / (others @ problem.rows).norm(dim=1, keepdim=True)
    candidate = rows - torch.where(tight, shared, torch.zeros_like(shared)) * scale * others
    candidate = candidate / candidate.norm(dim=1, keepdim=True).clamp(min=1e-30)
    zeros = shows_zero(problem, rows).sum(dim=1)
    gained = shows_zero(problem, candidate).sum(dim=1) - zeros
    # A part has more zeros than the mixture. Taking a mixture out of one of its parts would leave the other part.
    is_part = shows_zero(problem, others).sum(dim=1) > zeros
    return torch.where((tight[:, 0] & is_part & (gained >= LEAST_GAIN // 2))[:, None], candidate, rows)
