"""Zeros of rows: which entries count as zero, and how many of them chance makes.

With ReLU, the row of an input is exactly zero on every unit that never fires on it.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhume.attacks.gates.problem import RowProblem


@dataclass(frozen=True, kw_only=True)
class Entries:
    """The entries of rows, classified by their size."""

    zero: Bool[Tensor, "row unit"]
    """Informative units on which the row is zero up to noise."""
    near_zero: Bool[Tensor, "row unit"]
    """Informative units in the band just above, as wide as the zeros: what noise may hide at zero by chance."""
    nonzero: Bool[Tensor, "row unit"]
    """Units, silent ones included, on which the row is larger than noise makes it."""

    @property
    def evidence(self) -> Int[Tensor, " row"]:
        """The number of zeros beyond those that noise makes of small entries."""
        return self.zero.sum(dim=1) - self.near_zero.sum(dim=1)


def zero_width(problem: RowProblem, rows: Float[Tensor, "row rank"]) -> Float[Tensor, "row 1"]:
    """Return the size up to which an entry of a normalised row counts as zero.

    From the measured noise, or from the scatter of the row's own zeros where that is more: an inexact row has zeros
    that scatter more than noise.
    """
    rules, noise = problem.certificate, problem.noise_width(rows)[:, None]
    widest = (problem.deviations * noise).clamp(min=rules.widest_zero)
    if problem.forms is not None:  # the rounding of squares differs too much between units to measure it by one number
        return widest
    size = problem.normalise(rows).abs()
    is_small = (size <= widest) & problem.informative.bool()
    typical = size.masked_fill(~is_small, torch.nan).nanmedian(dim=1, keepdim=True).values.nan_to_num(0.0)
    scatter = typical / 0.6745  # the median size of a normal variable, in standard deviations
    return torch.minimum(problem.deviations * torch.maximum(scatter, noise), widest)


def classify_entries(problem: RowProblem, rows: Float[Tensor, "row rank"]) -> Entries:
    """Classify the entries of rows by their size."""
    size, width = problem.normalise(rows).abs(), zero_width(problem, rows)
    informative, nonzero = problem.informative.bool(), size > width
    return Entries(
        zero=(size <= width) & informative, near_zero=nonzero & (size <= 2 * width) & informative, nonzero=nonzero
    )


def find_zeros(problem: RowProblem, rows: Float[Tensor, "row rank"]) -> Bool[Tensor, "row unit"]:
    """Return on which informative units each row is zero up to noise."""
    return classify_entries(problem, rows).zero


def count_evidence(problem: RowProblem, rows: Float[Tensor, "row rank"]) -> Float[Tensor, " row"]:
    """Count the zeros of rows beyond those that noise makes of small entries."""
    return classify_entries(problem, rows).evidence.to(rows)


def count_chance_zeros(
    problem: RowProblem, rows: Float[Tensor, "row rank"], *, is_strict: bool = False
) -> Float[Tensor, " row"]:
    """Estimate how many entries of each row are zero by chance, from the density of small entries above the zeros.

    The largest of three estimates: from a band as narrow as the zeros, from a wide one, since a search leaves few
    entries just above the zeros that it forces, and for a normal vector, which matters where noise makes zeros nearly
    as wide as the row. With ``is_strict``, one more entry is taken to be in the narrow band. In a layer of 40 units
    this is a chance of 1/40 per zero, where a wide band shows 1/10 000.
    """
    size, width = problem.normalise(rows).abs(), zero_width(problem, rows)
    narrow = ((size > width) & (size <= 2 * width) & problem.informative.bool()).sum(dim=1).to(rows)
    seen = torch.maximum(narrow + is_strict, _in_wide_band(problem, size, width, extra=1))
    return torch.maximum(seen, problem.units * torch.erf(width[:, 0] / 2**0.5))


def count_beyond_chance(
    problem: RowProblem, rows: Float[Tensor, "row rank"], zeros: Bool[Tensor, "row unit"]
) -> Float[Tensor, " row"]:
    """Count zeros beyond those that chance makes, by the density of entries in a wide band above them.

    Entries in a narrow band are mostly those of units that fired for a moment.
    """
    return zeros.sum(dim=1) - _in_wide_band(problem, problem.normalise(rows).abs(), zero_width(problem, rows))


def _in_wide_band(
    problem: RowProblem, size: Float[Tensor, "row unit"], width: Float[Tensor, "row 1"], extra: int = 0
) -> Float[Tensor, " row"]:
    """Return how many zeros the density of small entries makes expect, with ``extra`` entries more than are there."""
    band = (3 * width).clamp(min=problem.certificate.density_band)
    small = ((size > width) & (size <= band) & problem.informative.bool()).sum(dim=1) + extra
    expected: Tensor = small * (width / (band - width))[:, 0]
    return expected
