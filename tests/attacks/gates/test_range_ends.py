"""Inputs at the ends of their range: a combination of dark images is moved to the image that it is nearest to."""

import torch

from exhume.attacks.gates.range_ends import codes_of, touch_range, values_of
from tests.attacks.gates.dark_images import dark_images, pose


def test_values_and_codes_are_inverse():
    images = dark_images(10)
    problem, codes = pose(images)
    torch.testing.assert_close(values_of(problem, 3.0 * codes), images)
    torch.testing.assert_close(codes_of(problem, images), codes)


def test_nearly_right_inputs_become_exact():
    images = dark_images(12)
    problem, codes = pose(images)
    generator = torch.Generator().manual_seed(1)
    mixture = torch.eye(12, dtype=torch.float64) + 0.05 * torch.randn(12, 12, generator=generator, dtype=torch.float64)
    touched = values_of(problem, touch_range(problem, mixture @ codes, codes[:0]))
    errors = (touched[:, None] - images).abs().amax(dim=2)
    assert (errors.amin(dim=0) < 1e-6).sum() >= 11


def test_images_without_dark_pixels_stay_unknown():
    generator = torch.Generator().manual_seed(0)
    images = 0.2 + 0.6 * torch.rand(12, 300, generator=generator, dtype=torch.float64)
    problem, codes = pose(images)
    touched = values_of(problem, touch_range(problem, codes + 0.05 * codes.flip(0), codes[:0]))
    assert (touched[:, None] - images).abs().amax(dim=2).min() > 1e-3 if len(touched) else True


def test_nothing_is_left_to_move_once_all_rows_are_known():
    problem, codes = pose(dark_images(6))
    everything = torch.eye(6, dtype=torch.float64)
    assert len(touch_range(problem, codes, everything)) == 0
