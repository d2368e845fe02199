"""Rows from sums of squared gradients."""

import functools

import torch

from exhume.attacks import GateCertificate
from exhume.attacks.gates.squares import add_squares, refute_parts, rows_by_squares
from exhume.attacks.gates.zeros import find_zeros
from exhume.clues.clues import clues_of
from exhume.clues.second_moment import read_unit_squares
from tests.attacks.gates.evidence_victims import adam_view
from tests.attacks.gates.victims import cosines, draw, mix_rows, problem_of, score, true_rows


@functools.cache
def victim():
    data = draw("faces", size=12)
    view, fired = adam_view(data)
    squares = read_unit_squares(clues_of(view).require_subspace())
    return data, view, fired, add_squares(problem_of(view), squares), true_rows(view, data.train.inputs)


def test_squares_add_units_that_are_zero_where_an_input_never_fired():
    _, _, fired, problem, rows = victim()
    units = fired.shape[1]
    entries = problem.normalise(rows)[:, units:].abs()
    is_known = problem.informative[units:].bool()
    assert float(entries[:, is_known][~fired[:, is_known]].max()) < 1e-3
    assert torch.equal(problem.gated[units:], torch.zeros(units, dtype=torch.float64))


def test_nearly_every_start_ends_in_a_true_row():
    _, _, _, problem, rows = victim()
    none, generator = rows[:0], torch.Generator().manual_seed(0)
    best = cosines(rows_by_squares(problem, none, 64, generator), rows).abs()
    assert float((best.amax(dim=1) > 1 - 1e-4).double().mean()) > 0.7
    missing = cosines(rows_by_squares(problem, rows[:9], 64, generator), rows).abs()
    assert bool((missing[:, 9:].amax(dim=0) > 1 - 1e-4).all())


def test_a_part_is_refuted_only_where_it_is_none():
    _, _, _, problem, rows = victim()
    refuted = refute_parts(problem, rows, find_zeros(problem, rows))
    assert int(refuted.sum()) > len(rows) * (len(rows) - 1) / 2
    assert not bool(refuted.diagonal().any())
    mixed = mix_rows(rows, place=3, other=5, part=0.3)
    assert not bool(refute_parts(problem, mixed, find_zeros(problem, mixed))[3, 5])


def test_a_checkpoint_with_squares_gives_every_input_away():
    data, view, _, _, _ = victim()
    result = score(GateCertificate().run(view, seed=0), data.train.inputs)
    assert result.recovered == 12
    assert result.false == 0
