"""Inputs that levels prove: what they say about rows, and how they lead to all others."""

import math

import pytest
import torch

from exhume.attacks.gates.known_inputs import KnownInputs, add_independent, are_trained_on, rows_of_known
from tests.attacks.gates.dark_images import dark_images, pose, true_rows


def test_known_inputs_are_equations_for_rows():
    problem, codes = pose(dark_images(8))
    products = true_rows(problem, codes) @ (codes / problem.strengths).T
    torch.testing.assert_close(products, torch.diag(products.diagonal()), atol=1e-9, rtol=0)


@pytest.mark.parametrize("known", [4, 10, 16])
def test_the_rows_of_known_inputs_are_found(known):
    problem, codes = pose(dark_images(16))
    rows, log_p = rows_of_known(problem, codes[:known])
    assert (log_p < math.log(1e-3)).all()
    cosines = (rows @ true_rows(problem, codes)[:known].T).abs()
    assert cosines.amax(dim=1).min() > 1 - 1e-9


def test_an_input_that_others_span_is_not_added():
    _, codes = pose(dark_images(5))
    known = add_independent(codes[:0], codes)
    assert len(known) == 5
    assert len(add_independent(known, codes + 1e-7 * codes.flip(0))) == 5


def test_only_inputs_on_levels_are_kept():
    problem, codes = pose(dark_images(12))
    known = KnownInputs(problem=problem)
    known.add(codes + 0.1 * codes.roll(1, 0))
    assert len(known) == 0
    known.add(codes)
    assert known.are_all
    assert known.tried == 24


def test_a_few_good_guesses_lead_to_all_inputs():
    problem, codes = pose(dark_images(16))
    known = KnownInputs(problem=problem)
    guesses = codes[:8] + 0.1 * codes[8:]
    assert known.touch(guesses, codes[:0], torch.Generator().manual_seed(0))
    assert known.are_all


def test_nothing_is_proven_about_images_off_the_levels():
    generator = torch.Generator().manual_seed(0)
    images = dark_images(16)
    problem, codes = pose(images * torch.rand(images.shape, generator=generator, dtype=torch.float64))
    known = KnownInputs(problem=problem)
    assert not known.touch(codes, codes[:0], generator)
    assert len(known.rows) == 0


def test_all_others_determine_the_last_input():
    problem, codes = pose(dark_images(16))
    rows = true_rows(problem, codes)
    rows[3] = rows[3] + 0.3 * rows[15]  # moves the last input, and no other
    known = KnownInputs(problem=problem)
    known.add(codes[:14])
    known.add_last(rows)
    assert len(known) == 14
    known.add(codes[14:15])
    known.add_last(rows)
    assert known.are_all


def test_rows_give_their_inputs_while_others_are_missing():
    problem, codes = pose(dark_images(16))
    known = KnownInputs(problem=problem)
    assert known.touch_rows(true_rows(problem, codes)[:13])
    assert len(known) == 13
    assert not known.touch_rows(true_rows(problem, codes))  # all are found: nothing is missing


def test_inputs_that_were_trained_on_are_told_from_images_in_their_span():
    images = dark_images(12)
    shares = torch.rand(12, 12, generator=torch.Generator().manual_seed(2), dtype=torch.float64).pow(3)
    mixed = (shares / shares.sum(dim=1, keepdim=True)) @ images  # only these are trained on
    for trained, expected in ((images, 12), (mixed, 0)):
        problem, _ = pose(trained)
        codes = torch.cat([images, torch.ones_like(images[:, :1])], dim=1) @ problem.basis
        assert int(are_trained_on(problem, codes, codes).sum()) == expected
        assert int(are_trained_on(problem, codes.repeat(2, 1), codes).sum()) == 2 * expected  # copies fare alike
    assert are_trained_on(problem, codes[:0], codes).tolist() == []
