"""Distances against a slow twin, and scores at their limits."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from skimage.metrics import normalized_root_mse, peak_signal_noise_ratio, structural_similarity

from exhume.evaluation.distances import (
    UnitScale,
    cross_correlations,
    max_errors,
    paired_correlations,
    paired_squares,
    psnr,
    squared_distances,
    ssim,
)
from tests.evaluation.synthetic_data import SHAPES, make_data


def draw(count, shape, seed=0):
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("shape", SHAPES)
def test_squared_distances_are_what_a_loop_over_pairs_gives(shape):
    a, b = draw(5, shape), draw(4, shape, seed=1)
    slow = torch.stack([torch.stack([((x - y) ** 2).sum() for y in b]) for x in a])
    torch.testing.assert_close(squared_distances(a, b), slow, rtol=1e-12, atol=1e-12)


def test_the_distance_of_a_copy_survives_a_large_common_mean():
    a = draw(6, (1, 8, 8)) + 1000.0
    b = a + 1e-6
    torch.testing.assert_close(squared_distances(a, b).diagonal(), torch.full((6,), 64e-12).double(), rtol=1e-3, atol=0)


def test_a_candidate_that_is_not_finite_does_not_affect_others():
    a, b = draw(3, (4,)), draw(2, (4,), seed=1)
    spoilt = a.clone()
    spoilt[1, 2] = math.nan
    distances = squared_distances(spoilt, b)
    assert distances[1].isnan().all()
    torch.testing.assert_close(distances[[0, 2]], squared_distances(a, b)[[0, 2]])


@pytest.mark.parametrize("shape", SHAPES)
def test_cross_correlations_are_pearson_correlations(shape):
    a, b = draw(3, shape), draw(4, shape, seed=1)
    slow = torch.stack(
        [torch.stack([torch.corrcoef(torch.stack([x.flatten(), y.flatten()]))[0, 1] for y in b]) for x in a]
    )
    torch.testing.assert_close(cross_correlations(a, b), slow)
    torch.testing.assert_close(paired_correlations(a, b[:3]), slow[:, :3].diagonal())


@given(scale=st.floats(0.1, 10), shift=st.floats(-5, 5))
def test_cross_correlation_ignores_contrast_and_brightness(scale, shift):
    a, b = draw(3, (1, 8, 8)), draw(3, (1, 8, 8), seed=1)
    torch.testing.assert_close(paired_correlations(a * scale + shift, b), paired_correlations(a, b))


def test_psnr_agrees_with_scikit_image_and_is_infinite_for_a_copy():
    a, b = draw(3, (3, 32, 32)), draw(3, (3, 32, 32), seed=1)
    slow = [peak_signal_noise_ratio(x.numpy(), y.numpy(), data_range=1.0) for x, y in zip(a, b, strict=True)]
    assert psnr(a, b).tolist() == pytest.approx(slow)
    assert psnr(a, a).isinf().all()


def test_paired_squares_and_largest_errors():
    a, b = draw(3, (1, 8, 8)), draw(3, (1, 8, 8), seed=1)
    slow = [normalized_root_mse(x.numpy(), y.numpy(), normalization="min-max") for x, y in zip(a, b, strict=True)]
    spans = [float(x.max() - x.min()) for x in a]
    expected = [64 * (error * span) ** 2 for error, span in zip(slow, spans, strict=True)]
    assert paired_squares(a, b).tolist() == pytest.approx(expected)
    assert max_errors(a, b).tolist() == [(x - y).abs().max().item() for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 25, 25), (3, 32, 32), (3, 4, 9), (1, 3, 3), (8, 8)])
def test_structural_similarity_is_one_for_a_copy_and_falls_with_noise(shape):
    images = draw(4, shape)
    noise = draw(4, shape, seed=1) - 0.5
    levels = torch.stack([ssim(images, images + amount * noise) for amount in (0.0, 0.2, 1.0)])
    torch.testing.assert_close(levels[0], torch.ones(4).double())
    assert (levels.diff(dim=0) < 0).all()


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (3, 4, 9), (8, 8)])
def test_structural_similarity_is_what_scikit_image_returns(shape):
    a, b = draw(3, shape), draw(3, shape, seed=1).lerp(draw(3, shape), 0.7)
    settings = {"data_range": 1.0, "win_size": min(7, shape[-2] - 1 + shape[-2] % 2)}
    settings |= {"channel_axis": 0} if len(shape) == 3 else {}
    slow = [structural_similarity(x.numpy(), y.numpy(), **settings) for x, y in zip(a, b, strict=True)]
    assert ssim(a, b).tolist() == pytest.approx(slow, abs=1e-12)


@pytest.mark.parametrize("shape", [(30,), (1, 2, 8), (1, 1, 1)])
def test_structural_similarity_is_not_a_number_where_there_is_no_image(shape):
    assert ssim(draw(2, shape), draw(2, shape)).isnan().all()


def test_images_are_measured_in_their_range_and_tables_in_their_columns_deviation():
    pixels = make_data((1, 8, 8), 6)
    bytes_ = make_data((1, 8, 8), 6)
    object.__setattr__(bytes_, "bounds", (0.0, 255.0))
    torch.testing.assert_close(
        UnitScale.of(bytes_)(255 * pixels.train.inputs), UnitScale.of(pixels)(pixels.train.inputs)
    )
    table = make_data((30,), 50)
    both = UnitScale.of(table)(torch.cat([table.train.inputs, table.holdout.inputs]))
    torch.testing.assert_close(both.std(0, correction=0), torch.ones(30).double())


def test_a_constant_column_is_left_as_it_is():
    table = make_data((3,), 4)
    table.train.inputs[:, 1] = table.holdout.inputs[:, 1] = 7.0
    assert UnitScale.of(table)(table.train.inputs).isfinite().all()
