"""Zeros of rows: which entries count as zero, and which rows share their zeros.

With ReLU, the row of an input is exactly zero on every unit that never fires on it.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
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


def zero_width(problem: RowProblem, rows: Float[Tensor, "row rank"]) -> Float[Tensor, "row 1"]:
    """Return the size up to which an entry of a normalised row counts as zero, from the measured noise."""
    rules = problem.certificate
    return (rules.zero_width * problem.noise_width(rows)).clamp(min=rules.least_zero_width)[:, None]


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
    entries = classify_entries(problem, rows)
    return (entries.zero.sum(dim=1) - entries.near_zero.sum(dim=1)).to(rows)


def off_probability(
    normalised: Float[Tensor, "candidate unit"], on: Float[Tensor, "candidate unit"] | float, width: Tensor
) -> Float[Tensor, "candidate unit"]:
    """Return how likely each unit is off, under a narrow Laplace density of entries if off and a wide one if on."""
    size = normalised.abs()
    typical = size.mean(dim=1, keepdim=True) / 0.55
    narrow = (1 - on) * torch.exp(-size / width) / width
    wide = on * torch.exp(-size / typical) / typical
    return narrow / (narrow + wide + 1e-30)
