"""Zeros of rows: small entries are off, and evidence counts zeros beyond noise."""

import pytest
import torch

from exhume.attacks.gates.zeros import (
    classify_entries,
    count_chance_zeros,
    count_evidence,
    find_zeros,
    zero_width,
)
from tests.attacks.gates.victims import problem_of, random_change, random_rows, solved_problem


def test_every_informative_entry_is_zero_or_nonzero():
    problem, rows, _ = solved_problem()
    entries = classify_entries(problem, rows)
    informative = problem.informative.bool()
    assert torch.equal(entries.zero | (entries.nonzero & informative), informative.expand_as(entries.zero))
    assert not bool((entries.zero & entries.nonzero).any())
    assert bool((entries.near_zero <= entries.nonzero).all())
    size, width = problem.normalise(rows).abs(), zero_width(problem, rows)
    assert float(size[entries.zero].max()) <= float(width.max())


def test_evidence_counts_zeros():
    problem, rows, _ = solved_problem()
    zeros = find_zeros(problem, rows).sum(dim=1)
    assert bool((count_evidence(problem, rows) <= zeros).all())
    assert float(count_evidence(problem, rows).min()) > 0.8 * float(zeros.min())
    assert float(count_evidence(problem, random_rows(problem, 8, seed=1)).max()) < 0.2 * float(zeros.min())


def test_zeros_by_chance_are_estimated_from_the_density_of_small_entries():
    problem = problem_of(random_change(width=64)[0])
    rows = random_rows(problem, 4000)
    # Entries of a random row are roughly normal: the density at zero is 0.4 per root mean square.
    per_width = (count_chance_zeros(problem, rows) / zero_width(problem, rows)[:, 0]).median()
    assert float(per_width) == pytest.approx(2 * 0.4 * problem.units, rel=0.6)
