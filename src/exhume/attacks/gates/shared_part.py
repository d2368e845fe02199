"""Inputs of a layer whose units nearly all inputs switch alike, as after training on few examples.

A trained layer has many units that are off for all inputs, and many that are on for all. An input then leaves too few
zeros in its row to be found by them. But in one gradient of a layer below a linear output layer, a unit ``u`` that is
on for all inputs has the change ``K w_u``, with its output weights ``w_u`` and one matrix ``K`` for all such units.
Once ``K`` is known, ``K w_u`` less the change of any other unit is the sum over the inputs that leave it *off*. So a
unit that most inputs turn on tells about the few that do not, as a unit that few inputs turn on tells about those few.
Each unit then has few *participants*; the change of a unit with a single one is its input.
"""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.clues.first_layer import Signals
from exhume.clues.subspace import InputSubspace, decompose
from exhume.records import Reconstruction

SEPARATED = "it was separated from the part that all inputs share, which proves nothing"
"""Why an input that was found in this way is not certified."""
SAME_INPUT = 0.01
"""Distance of two inputs, relative to their norm, up to which they are the same."""
NOISE_TAIL = 8.0
"""Standard deviations up to which an entry counts as zero."""
FIRM = 60.0
"""Size of a column, in standard deviations of its noise, from which it serves as an input."""
LEAST_SEPARATION = 1.9
"""Least sum of the shares of zeros that a row has where its input takes no part, and of nonzeros where it does."""
LEAST_GAP = 3.0
"""Least ratio of the two smallest singular values of the columns that an input takes no part in."""
INSIDE = 0.98
"""Least share of the units that all inputs turn on or off which an input must turn on or off as well."""
ROUNDS = 10
POWER = 0.5
"""Exponent of residuals in robust fits; below 1, so that many small outliers do not add up."""


def read_out_linearly(signals: Signals, units: int, like: Tensor) -> Float[Tensor, "output unit"] | None:
    """Return the output weights of all units, where outputs are linear in what the activation returns; else None."""
    generator = torch.Generator().manual_seed(0)
    active = 0.5 + torch.rand(2, units, generator=generator, dtype=torch.float64).to(like)
    first, second = signals(active)
    return first if torch.allclose(first, second) else None


def separate_inputs(subspace: InputSubspace, readout: Float[Tensor, "output unit"]) -> Float[Tensor, "input value"]:
    """Find inputs of a layer with a bias from one gradient, as far as units with few participants determine them.

    Args:
        subspace: what the gradient of the layer shows.
        readout: the output weights of all units.
    """
    columns = _pose(subspace, readout)
    if columns is None:
        return subspace.basis.new_zeros(0, subspace.basis.shape[0] - 1)
    codes = _peel(columns)
    return (codes @ columns.basis.T)[:, :-1]


def add_candidates(found: Reconstruction, inputs: Float[Tensor, "input ..."], doubt: str) -> Reconstruction:
    """Return a reconstruction of :class:`GateCertificate` with further inputs, none of them certified."""
    count, about = len(inputs), found.diagnostics
    if count == 0:
        return found
    assert found.p_values is not None
    return replace(
        found,
        inputs=torch.cat([found.inputs, inputs]),
        certified=torch.cat([found.certified, torch.zeros(count, dtype=torch.bool)]),
        confidence=torch.cat([found.confidence, torch.full((count,), 0.5)]),
        p_values=torch.cat([found.p_values, torch.ones(count).to(found.p_values)]),
        diagnostics={
            **about,
            "agreement": [*about["agreement"], *[None] * count],
            "contradictions": [*about["contradictions"], *[None] * count],
            "error_bounds": [*about["error_bounds"], *[None] * count],
            "doubts": [*about["doubts"], *[doubt] * count],
            "separated": count,
        },
    )


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """The changes of the units that some inputs turn on and others off, less the part that all inputs share."""

    changes: Float[Tensor, "rank unit"]
    """In coordinates of the basis and in standard deviations of their noise."""
    gates: Float[Tensor, "unit rank"]
    """From inputs to pre-activations; turned where participants are those that leave the unit off."""
    limits: Float[Tensor, "limit rank"]
    """From inputs to values that are positive for all of them."""
    basis: Float[Tensor, "value rank"]

    @property
    def constant(self) -> Float[Tensor, " rank"]:
        """The constant of an input in these coordinates."""
        return self.basis[-1]

    def participation(self, codes: Float[Tensor, "input rank"]) -> Bool[Tensor, "input unit"]:
        """Return which units inputs take part in."""
        return codes @ self.gates.T > 0

    def is_possible(self, codes: Float[Tensor, "input rank"]) -> Bool[Tensor, " input"]:
        """Return which inputs switch the units alike that all inputs switch alike."""
        return ((codes @ self.limits.T) > 0).double().mean(dim=1) >= INSIDE


def _pose(subspace: InputSubspace, readout: Float[Tensor, "output unit"]) -> _Columns | None:
    """Subtract what all inputs share; None where no unit shows it."""
    layer = subspace.layer
    change, values = layer.change, layer.change.shape[0]
    parts = decompose(change, layer.rounding)
    level = parts.spectrum[min(subspace.rank + len(parts.spectrum) // 10, len(parts.spectrum) - 1)]
    rank = max(subspace.rank, int((parts.spectrum > 3 * level).sum()))
    basis = change.new_zeros(values, rank)
    basis[parts.values] = parts.left[:, :rank]
    moved, size = basis.T @ change, change.norm(dim=0)
    is_live = size > NOISE_TAIL * subspace.noise * math.sqrt(values)
    deviation = 0.35 * layer.precision * size / math.sqrt(values) + subspace.noise
    shared, is_shared = _fit_shared_part(moved, readout, is_live, NOISE_TAIL * deviation * math.sqrt(rank))
    if int(is_shared.sum()) < 2 * len(readout):
        return None
    gates = layer.after @ basis
    limits = torch.cat([gates[is_shared], -gates[~is_live]])
    limits = limits / limits.norm(dim=1, keepdim=True).clamp(min=1e-300)
    is_on = gates @ _centre(limits) > 0
    chosen = is_live & ~is_shared
    changes = torch.where(is_on, moved - shared @ readout, moved)[:, chosen] / deviation[chosen]
    turned = torch.where(is_on, -1.0, 1.0).to(gates)[:, None]
    return _Columns(changes=changes, gates=(turned * gates)[chosen], limits=limits, basis=basis)


def _fit_shared_part(
    moved: Float[Tensor, "rank unit"],
    readout: Float[Tensor, "output unit"],
    is_live: Bool[Tensor, " unit"],
    limit: Float[Tensor, " unit"],
) -> tuple[Float[Tensor, "rank output"], Bool[Tensor, " unit"]]:
    """Find the matrix ``K`` with ``K w_u`` the change of as many units as possible, and these units."""
    shared, _ = _fit_robustly(readout[:, is_live], moved[:, is_live], torch.ones_like(limit[is_live]))
    fits = is_live
    for _ in range(4):
        fits = is_live & ((moved - shared @ readout).norm(dim=0) < limit)
        if int(fits.sum()) < 2 * len(readout):
            break
        shared = torch.linalg.lstsq(readout[:, fits].T, moved[:, fits].T, driver="gelsd").solution.T
    return shared, fits


def _fit_robustly(
    known: Float[Tensor, "input unit"], wanted: Float[Tensor, "rank unit"], size: Float[Tensor, " unit"]
) -> tuple[Float[Tensor, "rank input"], Float[Tensor, " unit"]]:
    """Fit ``wanted = A known`` for as many units as possible; return ``A`` and the residuals relative to ``size``."""

    def fit(weights: Tensor) -> Tensor:
        solved: Tensor = torch.linalg.lstsq((known * weights).T, (wanted * weights).T, driver="gelsd").solution
        return solved.T

    matrix = fit(1 / size)
    residuals = (wanted - matrix @ known).norm(dim=0) / size
    width = residuals.median()
    for _ in range(100):
        matrix = fit((residuals.square() + width**2) ** (POWER / 4 - 0.5) / size)
        residuals = (wanted - matrix @ known).norm(dim=0) / size
        width = 0.8 * width
    return matrix, residuals


def _centre(limits: Float[Tensor, "limit rank"]) -> Float[Tensor, " rank"]:
    """Return a point well inside all limits, as the inputs are: most of them lie on its side of other units."""
    wanted = torch.ones(len(limits), 1).to(limits)
    point: Tensor = torch.linalg.lstsq(limits, wanted, driver="gelsd").solution[:, 0]
    for _ in range(300):
        margins = limits @ point
        size = margins.abs().mean()
        pull = torch.softmax(-3 * margins / size, dim=0) @ limits
        point = point + 0.3 * size * pull / pull.norm()
    return point


def _peel(columns: _Columns) -> Float[Tensor, "input rank"]:
    """Find inputs round by round, and subtract what each adds to the columns it takes part in."""
    changes, rank = columns.changes, len(columns.changes)
    rows = changes.new_zeros(0, rank)
    patterns: list[Tensor] = []
    codes: dict[int, Tensor] = {}
    left = changes
    for _ in range(ROUNDS):
        before = len(rows)
        known = torch.stack(list(codes.values())) if codes else rows[:0]
        for row, pattern in _find_rows(columns, torch.cat([_as_inputs(columns, left), known])):
            together = torch.cat([rows, row[None]])
            is_new = len(rows) == 0 or float((rows @ row).abs().max()) < 0.98
            if is_new and float(torch.linalg.svdvals(together)[-1]) > 1e-5:
                rows, patterns = together, [*patterns, pattern]
        if len(rows) == before:
            break
        left = _find_codes(columns, rows, patterns, codes)
    return torch.stack(list(codes.values())) if codes else rows[:0]


def _as_inputs(columns: _Columns, changes: Float[Tensor, "rank unit"]) -> Float[Tensor, "input rank"]:
    """Return the columns that are firm and possible inputs, with a constant of 1."""
    firm = changes[:, changes.norm(dim=0) > FIRM * math.sqrt(len(changes))].T
    firm = firm / (firm @ columns.constant)[:, None]
    firm = firm[firm.isfinite().all(dim=1)]
    return firm[columns.is_possible(firm)]


def _find_rows(
    columns: _Columns, codes: Float[Tensor, "input rank"]
) -> list[tuple[Float[Tensor, " rank"], Bool[Tensor, " unit"]]]:
    """Return rows that are zero exactly where their inputs take no part, with the units they take part in."""
    found = []
    for pattern in torch.unique(columns.participation(codes), dim=0) if len(codes) else ():
        others = columns.changes[:, ~pattern]
        if others.shape[1] < len(others) + 10 or not bool(pattern.any()):
            continue
        left, sizes, _ = torch.linalg.svd(others, full_matrices=False)
        entries = (left[:, -1] @ columns.changes).abs() > NOISE_TAIL
        separation = float((~entries[~pattern]).double().mean() + entries[pattern].double().mean())
        if separation > LEAST_SEPARATION and float(sizes[-2]) > LEAST_GAP * float(sizes[-1]):
            found.append((separation, left[:, -1], pattern))
    return [(row, pattern) for _, row, pattern in sorted(found, key=lambda one: -one[0])]


def _find_codes(
    columns: _Columns,
    rows: Float[Tensor, "row rank"],
    patterns: list[Bool[Tensor, " unit"]],
    codes: dict[int, Float[Tensor, " rank"]],
) -> Float[Tensor, "rank unit"]:
    """Add the inputs of rows to ``codes``, and return the columns less what these inputs explain."""
    entries = rows @ columns.changes
    while True:
        left = columns.changes
        for row, code in codes.items():
            left = left - code[:, None] * (entries[row] / (rows[row] @ code))
        missing = [row for row in range(len(rows)) if row not in codes]
        agreed = {row: _agreed_code(columns, left, patterns[row]) for row in missing}
        new = {row: one for row, one in agreed.items() if one is not None}
        if not new and missing:
            new = _fitted_codes(columns, left, entries, patterns, missing)
        if not new:
            return left
        codes |= new


def _agreed_code(
    columns: _Columns, left: Float[Tensor, "rank unit"], pattern: Bool[Tensor, " unit"]
) -> Float[Tensor, " rank"] | None:
    """Return the input that most of its columns agree on; None where no two agree."""
    root = math.sqrt(len(left))
    own = left[:, pattern]
    own = own[:, own.norm(dim=0) > FIRM * root]
    inputs = (own / (columns.constant @ own)).T
    precision = root / own.norm(dim=0)
    distances = torch.cdist(inputs, inputs) / inputs.norm(dim=1)
    agrees = distances < (12 * (precision[:, None] + precision)).clamp(max=1e-2)
    votes = agrees.sum(dim=1)
    if len(votes) < 2 or int(votes.max()) < 2:
        return None
    members = agrees[votes.argmax()]
    weights = precision[members] ** -2
    mean: Tensor = (inputs[members] * weights[:, None]).sum(dim=0) / weights.sum()
    return mean


def _fitted_codes(
    columns: _Columns,
    left: Float[Tensor, "rank unit"],
    entries: Float[Tensor, "row unit"],
    patterns: list[Bool[Tensor, " unit"]],
    missing: list[int],
) -> dict[int, Float[Tensor, " rank"]]:
    """Fit the inputs of several rows to the columns that they share; keep those that explain two columns or more."""
    root = math.sqrt(len(left))
    size = left.norm(dim=0)
    touched = torch.stack([patterns[row] for row in missing]).any(dim=0) & (size > 0.5 * FIRM * root)
    if int(touched.sum()) <= len(missing):
        return {}
    matrix, residuals = _fit_robustly(entries[missing][:, touched], left[:, touched], size[touched])
    explained = torch.zeros_like(touched)
    explained[touched] = residuals < (15 * root / size[touched]).clamp(min=1e-6)
    codes = (matrix / (columns.constant @ matrix)).T
    participation, is_possible = columns.participation(codes), columns.is_possible(codes)
    return {
        row: codes[place]
        for place, row in enumerate(missing)
        if bool(is_possible[place])
        and int((explained & patterns[row]).sum()) >= 2
        and int((participation[place] != patterns[row]).sum()) <= 2
    }
