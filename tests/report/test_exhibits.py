"""What is shown, beside what, and in which order."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from exhume.report.exhibits import are_images, select_exhibits, to_pixels
from tests.report.synthetic_audits import make_audit


def test_certified_recoveries_come_first_each_beside_its_nearest_training_example():
    evaluation = make_audit()
    shown = select_exhibits(evaluation)
    assert [one.certified for one in shown[:5]] == [True] * 5
    assert not any(one.certified for one in shown[5:])
    for one in shown[:4]:
        assert one.candidate == one.example
        assert torch.equal(one.recovered, one.original)
        assert one.certificate_p == pytest.approx(1e-13)
        assert not one.has_false_certificate
    assert shown[4].candidate == 6
    assert shown[4].has_false_certificate


def test_every_training_example_is_shown_and_no_candidate_twice():
    shown = select_exhibits(
        replace(make_audit(), found=replace(make_audit().found, certified=torch.zeros(9, dtype=torch.bool)))
    )
    assert sorted(one.example for one in shown) == list(range(8))
    assert len({one.candidate for one in shown}) == 8
    relative_distance = [one.relative_distance for one in shown]
    assert relative_distance == sorted(relative_distance)


def test_without_data_candidates_are_ordered_by_confidence():
    shown = select_exhibits(make_audit(known=False))
    assert [one.candidate for one in shown] == [0, 1, 2, 3, 6, 4, 5, 7, 8]
    assert all(one.original is None and one.example is None and one.max_error is None for one in shown)


def test_pixels_are_clipped_to_the_bounds():
    values = torch.tensor([[[-1.0, 0.0], [127.5, 300.0]]])
    assert to_pixels(values, (0.0, 255.0))[..., 0].tolist() == [[0, 0], [128, 255]]
    assert to_pixels(torch.tensor([[[float("nan"), 0.5]]]), None).tolist() == [[[0] * 3, [128] * 3]]


def test_colour_keeps_its_channels_and_grey_is_repeated():
    colour = torch.stack([torch.full((2, 2), level) for level in (0.0, 0.2, 1.0)])
    assert to_pixels(colour, (0.0, 1.0))[0, 0].tolist() == [0, 51, 255]
    grey = to_pixels(torch.rand(25, 25), (0.0, 1.0))
    assert grey.shape == (25, 25, 3)
    assert np.array_equal(grey[..., 0], grey[..., 2])


@pytest.mark.parametrize(("shape", "shown"), [((1, 8, 8), True), ((8, 8), True), ((30,), False), ((1, 1, 30), False)])
def test_rows_of_a_table_are_no_images(shape, shown):
    assert are_images(make_audit(shape)) is shown
