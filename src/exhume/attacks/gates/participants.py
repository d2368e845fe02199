"""Separate inputs by units with few participants: peel one input after the other off the columns of a layer.

A column is what a unit shows of the inputs that take part in it. The column of a unit with a single participant is its
input; an input that is found is subtracted from all columns it takes part in, which leaves others alone in theirs.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.gates.rules import CertificateRules, SearchRules
from exhume.clues.subspace import CLEAR_GAP
from exhume.core.least_squares import solve_least_squares
from exhume.core.progress import Tick, no_tick

POWER = 0.5
"""Exponent of residuals in robust fits; below 1, so that many small outliers do not add up."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The changes of the units that some inputs turn on and others off, less the part that all inputs share."""

    changes: Float[Tensor, "rank unit"]
    """In coordinates of the basis and in standard deviations of their noise."""
    gates: Float[Tensor, "unit rank"]
    """From inputs to pre-activations; turned where participants are those that leave the unit off."""
    limits: Float[Tensor, "limit rank"]
    """From inputs to values that are positive for all of them."""
    basis: Float[Tensor, "value rank"]
    signals: Float[Tensor, "output unit"]
    """The entry of a unit in a row, per gradient of its input with respect to the outputs."""
    precision: float
    """Rounding of a backward signal, relative to the largest that it can be. It acts along one input, so that noise in
    random directions hides it for weak inputs and not for strong ones."""
    certificate: CertificateRules = field(default_factory=CertificateRules)
    search: SearchRules = field(default_factory=SearchRules)

    @cached_property
    def deviations(self) -> float:
        """How many standard deviations noise exceeds in no entry of any column, except with the error rate."""
        return self.certificate.deviations(self.changes.numel())

    @property
    def noise(self) -> float:
        """The norm of the noise of a column."""
        return math.sqrt(len(self.changes))

    @property
    def firm(self) -> float:
        """The norm from which a column serves as an input: its noise is within the precision of an input."""
        return self.noise / self.certificate.precision

    @property
    def same(self) -> float:
        """Largest distance of two copies of an input, relative to its norm; each is off by half of it at most."""
        return self.certificate.precision / 2

    @property
    def reach(self) -> Float[Tensor, " unit"]:
        """The largest entry of a unit in a row whose input has a gradient of norm 1 with respect to the outputs."""
        reach: Tensor = self.signals.norm(dim=0)
        return reach

    @property
    def constant(self) -> Float[Tensor, " rank"]:
        """The constant of an input in these coordinates."""
        return self.basis[-1]

    def participation(self, codes: Float[Tensor, "input rank"]) -> Bool[Tensor, "input unit"]:
        """Return which units inputs take part in."""
        return codes @ self.gates.T > 0

    def is_entry(self, row: Float[Tensor, " rank"], pattern: Bool[Tensor, " unit"]) -> Bool[Tensor, " unit"]:
        """Return where the entries of a row are not zero, if its input takes part in the units of ``pattern``."""
        entries = (row @ self.changes).abs()
        strength = (entries / self.reach)[pattern].max()
        return entries > self.deviations * (1 + self.precision * strength * self.reach)

    def is_possible(self, codes: Float[Tensor, "input rank"]) -> Bool[Tensor, " input"]:
        """Return which inputs switch nearly all units alike that all inputs switch alike."""
        return ((codes @ self.limits.T) <= 0).double().mean(dim=1) <= self.search.few


def peel(columns: Columns, tick: Tick = no_tick) -> Float[Tensor, "input rank"]:
    """Find inputs round by round, and subtract what each adds to the columns it takes part in.

    ``tick`` is called between steps; it may raise to stop.
    """
    changes, rank = columns.changes, len(columns.changes)
    rows = changes.new_zeros(0, rank)
    patterns: list[Tensor] = []
    codes: dict[int, Tensor] = {}
    left = changes
    for _ in range(rank):
        before = len(rows), len(codes)
        known = torch.stack(list(codes.values())) if codes else rows[:0]
        for row, pattern in _find_rows(columns, as_inputs(columns, left), known, tick):
            tick()
            is_new = float(torch.linalg.svdvals(torch.cat([rows, row[None]]))[-1]) > columns.search.independence
            # An input that takes part in these units and in no others hides the row of this one until it is known.
            hidden = [
                one for place, one in enumerate(patterns) if place not in codes and not bool((one & ~pattern).any())
            ]
            if is_new and not hidden:
                rows, patterns = torch.cat([rows, row[None]]), [*patterns, pattern]
        left = _find_codes(columns, rows, patterns, codes, tick)
        if (len(rows), len(codes)) == before:
            break
    return torch.stack(list(codes.values())) if codes else rows[:0]


def as_inputs(columns: Columns, changes: Float[Tensor, "rank unit"]) -> Float[Tensor, "input rank"]:
    """Return the columns that are firm and possible inputs, with a constant of 1."""
    firm = changes[:, changes.norm(dim=0) > columns.firm].T
    firm = firm / (firm @ columns.constant)[:, None]
    firm = firm[firm.isfinite().all(dim=1)]
    return firm[columns.is_possible(firm)]


def _find_rows(
    columns: Columns, codes: Float[Tensor, "input rank"], known: Float[Tensor, "known rank"], tick: Tick = no_tick
) -> list[tuple[Float[Tensor, " rank"], Bool[Tensor, " unit"]]]:
    """Return rows that are zero exactly where their inputs take no part, with the units they take part in.

    Rows are orthogonal to the inputs that are ``known``, whose part in the columns then does not matter.
    """
    free = torch.linalg.qr(known.T, mode="complete")[0][:, len(known) :]
    changes, found = free.T @ columns.changes, []
    for pattern in torch.unique(columns.participation(codes), dim=0) if len(codes) and len(changes) else ():
        tick()
        if int((~pattern).sum()) < 2 * len(changes) or not bool(pattern.any()):  # too few zeros determine no row
            continue
        row, gap = _contrast(changes[:, pattern], changes[:, ~pattern])
        entries = columns.is_entry(free @ row, pattern)
        separation = float((~entries[~pattern]).double().mean() + entries[pattern].double().mean())
        if separation > 2 - columns.search.few and gap > CLEAR_GAP:
            found.append((separation, free @ row, pattern))
    return [(row, pattern) for _, row, pattern in sorted(found, key=lambda one: -one[0])]


def _contrast(
    inside: Float[Tensor, "rank one"], outside: Float[Tensor, "rank other"]
) -> tuple[Float[Tensor, " rank"], float]:
    """Return the direction that some columns have most of and others least, and how far it is ahead of the next.

    Noise of one standard deviation per column counts on the side of the others. So a strong input whose own rounding
    exceeds what weak inputs add is not mixed with them.
    """
    axes, sizes, _ = torch.linalg.svd(outside, full_matrices=False)
    whitening = axes / (sizes.square() + outside.shape[1]).sqrt()
    best, strengths, _ = torch.linalg.svd(whitening.T @ inside, full_matrices=True)
    row = whitening @ best[:, 0]
    second = float(strengths[1]) if len(strengths) > 1 else 0.0
    return row / row.norm(), float(strengths[0]) / max(second, 1e-300)


def _find_codes(
    columns: Columns,
    rows: Float[Tensor, "row rank"],
    patterns: list[Bool[Tensor, " unit"]],
    codes: dict[int, Float[Tensor, " rank"]],
    tick: Tick = no_tick,
) -> Float[Tensor, "rank unit"]:
    """Add the inputs of rows to ``codes``, and return the columns less what these inputs explain."""
    entries = rows @ columns.changes
    while True:
        tick()
        left = columns.changes
        for row, code in codes.items():
            left = left - code[:, None] * (entries[row] / (rows[row] @ code))
        missing = [row for row in range(len(rows)) if row not in codes]
        agreed = {row: _agreed_code(columns, left, patterns[row]) for row in missing}
        new = {row: one for row, one in agreed.items() if one is not None}
        if not new and missing:
            new = _fitted_codes(columns, left, entries, patterns, missing, tick)
        if not new:
            return left
        codes |= new


def _agreed_code(
    columns: Columns, left: Float[Tensor, "rank unit"], pattern: Bool[Tensor, " unit"]
) -> Float[Tensor, " rank"] | None:
    """Return the input that most of its columns agree on; None where no two agree."""
    own = left[:, pattern]
    own = own[:, own.norm(dim=0) > columns.firm]
    inputs = (own / (columns.constant @ own)).T
    precision = columns.noise / own.norm(dim=0)
    distances = torch.cdist(inputs, inputs) / inputs.norm(dim=1)
    agrees = distances < (columns.deviations * (precision[:, None] + precision)).clamp(max=columns.same)
    votes = agrees.sum(dim=1)
    if len(votes) < 2 or int(votes.max()) < 2:
        return None
    members = agrees[votes.argmax()]
    weights = precision[members] ** -2
    mean: Tensor = (inputs[members] * weights[:, None]).sum(dim=0) / weights.sum()
    return mean


def _fitted_codes(
    columns: Columns,
    left: Float[Tensor, "rank unit"],
    entries: Float[Tensor, "row unit"],
    patterns: list[Bool[Tensor, " unit"]],
    missing: list[int],
    tick: Tick = no_tick,
) -> dict[int, Float[Tensor, " rank"]]:
    """Fit the inputs of several rows to the columns that they share; keep those that explain two columns or more."""
    size = left.norm(dim=0)
    touched = torch.stack([patterns[row] for row in missing]).any(dim=0) & (size > columns.firm)
    if int(touched.sum()) <= len(missing):
        return {}
    matrix, residuals = fit_robustly(entries[missing][:, touched], left[:, touched], size[touched], tick)
    explained = torch.zeros_like(touched)
    explained[touched] = residuals < columns.deviations * columns.noise / size[touched]
    codes = (matrix / (columns.constant @ matrix)).T
    participation, is_possible = columns.participation(codes), columns.is_possible(codes)
    allowed = columns.certificate.allowed_contradictions(len(touched))
    return {
        row: codes[place]
        for place, row in enumerate(missing)
        if bool(is_possible[place])
        and int((explained & patterns[row]).sum()) >= 2
        and int((participation[place] != patterns[row]).sum()) <= allowed
    }


def fit_robustly(
    known: Float[Tensor, "input unit"],
    wanted: Float[Tensor, "rank unit"],
    size: Float[Tensor, " unit"],
    tick: Tick = no_tick,
) -> tuple[Float[Tensor, "rank input"], Float[Tensor, " unit"]]:
    """Fit ``wanted = A known`` for as many units as possible; return ``A`` and the residuals relative to ``size``.

    ``tick`` is called before each step; it may raise to stop.
    """

    def fit(weights: Tensor) -> Tensor:
        return solve_least_squares((known * weights).T, (wanted * weights).T).T

    matrix = fit(1 / size)
    residuals = (wanted - matrix @ known).norm(dim=0) / size
    width = residuals.median().clamp(min=1e-12)
    for _ in range(100):
        tick()
        matrix = fit((residuals.square() + width**2) ** (POWER / 4 - 0.5) / size)
        residuals = (wanted - matrix @ known).norm(dim=0) / size
        width = 0.8 * width
    return matrix, residuals
