"""Comparisons: which matches count as good, fine, exact and similar."""

import torch

from exhume.records import Comparison
from exhume.records.comparison import EXACT, FINE, GOOD, SIMILAR


def make_comparison(errors: list[float], ssim: float = 0.9) -> Comparison:
    """Match examples of four values, each off by one error in every value."""
    count = len(errors)
    off = torch.tensor(errors)
    return Comparison(
        examples=torch.zeros(count, 2, 2),
        labels=torch.zeros(count, dtype=torch.long),
        pairs=torch.arange(count)[:, None].expand(count, 2),
        curve=4 * off.square(),
        ssim=torch.full((count,), ssim),
        ncc=torch.ones(count),
        psnr=torch.ones(count),
        max_error=off,
        example_distances=4 * off.square(),
        nearest_examples=torch.arange(count),
        nearest_distances=4 * off.square(),
        nearest_errors=off,
    )


def test_counts_follow_the_mean_square_and_the_largest_error() -> None:
    errors = [0.5 * EXACT, 1.5 * EXACT, 1.1 * FINE**0.5, 1.1 * GOOD**0.5]
    compared = make_comparison(errors)
    assert len(compared) == 4
    assert (compared.exact, compared.fine, compared.good) == (1, 2, 3)
    torch.testing.assert_close(compared.mean_squares, torch.tensor(errors).square())


def test_similarity_is_counted_for_images_alone() -> None:
    assert make_comparison([0.1, 0.2], ssim=SIMILAR + 0.1).similar == 2
    assert make_comparison([0.1, 0.2], ssim=SIMILAR - 0.1).similar == 0
    assert make_comparison([0.1, 0.2], ssim=float("nan")).similar is None
