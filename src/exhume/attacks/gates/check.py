"""Check rows against the inputs that they imply.

All rows together determine every input (the columns of ``Z Γ⁺``) without using the zeros of any row. So the gates of
the input that belongs to a row *predict* where that row is zero, and the prediction can fail. How unlikely a correct
one is by chance is the subject of :mod:`exhume.attacks.gates.significance`.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.readout import choose_sign, divide_by_constant, fit_inputs, missing_directions
from exhume.attacks.gates.rules import CertificateRules
from exhume.attacks.gates.significance import log_p_placement
from exhume.attacks.gates.zeros import classify_entries
from exhume.core.progress import Tick, no_tick


@dataclass(frozen=True, kw_only=True)
class CheckedRows:
    """Rows with the inputs read out for them, and how well the two agree."""

    rows: Float[Tensor, "row rank"]
    inputs: Float[Tensor, "row value"]
    """Scaled to a constant of 1 where the layer has a bias."""
    agreement: Float[Tensor, " row"]
    """Fraction of informative units on which the gates of the input agree with the zeros of the row."""
    log_p: Float[Tensor, " row"]
    """Natural logarithm of the p-value of zeros that lie where the input is off, for one row tried."""
    contradictions: Float[Tensor, " row"]
    """Number of units that contradict the pair of row and input."""
    is_complete: bool
    """Whether all rows are found, so that every input is determined rather than fitted."""
    units: int
    """Number of informative units."""
    rules: CertificateRules

    @property
    def is_exact(self) -> Bool[Tensor, " row"]:
        """Which inputs hardly any unit contradicts."""
        return self.contradictions <= self.rules.allowed_contradictions(self.units)


def check_rows(problem: RowProblem, rows: Float[Tensor, "row rank"], tick: Tick = no_tick) -> CheckedRows:
    """Read out the input of each row from all of them, and check one against the other.

    With rows missing, the part of an input that they leave open is fitted to the row's own zeros; the p-value accounts
    for this freedom. ``tick`` is called between steps; it may raise to stop.
    """
    inputs = _read_inputs(problem, rows)
    directions, _ = missing_directions(problem, rows)
    if directions.shape[1]:
        # What missing rows add to an input may outweigh its constant, so both signs are tried. Where missing rows have
        # little effect, the input as it is read out is nearer than any fit.
        fits = torch.stack([inputs, *(fit_inputs(problem, rows, directions, sign * inputs, tick) for sign in (1, -1))])
        best = torch.stack([measure_agreement(problem, rows, fit) for fit in fits]).argmax(dim=0)
        inputs = fits[best, torch.arange(len(rows), device=rows.device)]
    return _compare(problem, rows, inputs)


def read_rows(problem: RowProblem, rows: Float[Tensor, "row rank"]) -> CheckedRows:
    """Check rows as :func:`check_rows` does, but leave inputs as all rows together show them, which takes no time."""
    return _compare(problem, rows, _read_inputs(problem, rows))


def _read_inputs(problem: RowProblem, rows: Float[Tensor, "row rank"]) -> Float[Tensor, "row value"]:
    return choose_sign(problem, rows, (problem.change @ torch.linalg.pinv(rows)).T)


def _compare(problem: RowProblem, rows: Float[Tensor, "row rank"], inputs: Float[Tensor, "row value"]) -> CheckedRows:
    """Compare rows with their inputs."""
    free = missing_directions(problem, rows)[0].shape[1]
    return CheckedRows(
        rows=rows,
        inputs=divide_by_constant(problem, inputs),
        agreement=measure_agreement(problem, rows, inputs),
        log_p=log_p_placement(problem, rows, inputs, free),
        contradictions=count_contradictions(problem, rows, inputs),
        is_complete=free == 0,
        units=problem.units,
        rules=problem.certificate,
    )


def measure_agreement(
    problem: RowProblem, rows: Float[Tensor, "row rank"], inputs: Float[Tensor, "row value"]
) -> Float[Tensor, " row"]:
    """Return the fraction of informative units on which an input's gates predict where its row is zero.

    A unit is predicted to be off if it is off before and after training. An entry that is on but hidden by noise does
    not count against a row: as many misses are forgiven as entries lie in the equally wide band above the noise.
    """
    predicted = torch.maximum(inputs @ problem.before.T, inputs @ problem.after.T) > 0
    entries, gated = classify_entries(problem, rows), problem.gated.bool()
    hits = ((predicted == entries.nonzero) & gated).sum(dim=1)
    hidden = (predicted & entries.zero & gated).sum(dim=1)
    return (hits + torch.minimum(hidden, (entries.near_zero & gated).sum(dim=1))) / gated.sum()


def count_contradictions(
    problem: RowProblem, rows: Float[Tensor, "row rank"], inputs: Float[Tensor, "row value"]
) -> Float[Tensor, " row"]:
    """Count the units on which a row is zero although its input turns them on before and after training.

    The first or the last training step moved such a unit, so a true row with its exact input has none; an inexact input
    has some. A unit that is on at one end only proves less: with mini-batches, an input may be used first and last when
    the unit is off. Entries that noise may have hidden are forgiven as in :func:`measure_agreement`.
    """
    on = torch.minimum(inputs @ problem.before.T, inputs @ problem.after.T) > 0
    entries = classify_entries(problem, rows)
    return ((on & entries.zero).sum(dim=1) - entries.near_zero.sum(dim=1)).clamp(min=0).to(rows)
