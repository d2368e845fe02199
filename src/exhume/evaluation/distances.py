"""Distances between inputs: tables of all pairs, and scores of matched pairs.

Everything here works in *unit values*, where the range of an image value (or the deviation of a table's column) is one,
and in float64.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.core.correlation import standardise
from exhume.records import Dataset

SSIM_WINDOW = 7
"""Window of structural similarity in pixels, as in most papers; smaller images take the largest odd one that fits."""
STABILISERS = (0.01**2, 0.03**2)
"""Constants of structural similarity for values between 0 and 1 that keep its quotients finite."""
PAIRS_AT_ONCE = 512
"""Pairs of images compared in one pass, which bounds the memory."""


@dataclass(frozen=True)
class UnitScale:
    """Converts inputs into unit values: ``(inputs - origin) / spread``."""

    origin: Float[Tensor, "..."]
    spread: Float[Tensor, "..."]

    @classmethod
    def of(cls, data: Dataset) -> "UnitScale":
        """Use the range of values where there is one, else each column's mean and standard deviation.

        The columns are measured on training and held-out examples together, so that neither set is favoured.
        """
        if data.bounds is not None:
            low, high = torch.tensor(data.bounds, dtype=torch.float64)
            return cls(low, high - low)
        both = torch.cat([data.train.inputs, data.holdout.inputs]).double()
        spread = both.std(0, correction=0)
        return cls(both.mean(0), torch.where(spread > 0, spread, 1.0))

    def __call__(self, inputs: Float[Tensor, "input ..."]) -> Float[Tensor, "input ..."]:
        """Return inputs as unit values."""
        return (inputs.double() - self.origin) / self.spread


def squared_distances(
    a: Float[Tensor, "candidate ..."], b: Float[Tensor, "example ..."]
) -> Float[Tensor, "candidate example"]:
    """Return the squared Euclidean distance of every pair.

    >>> squared_distances(torch.zeros(1, 4).double(), torch.ones(2, 4).double())
    tensor([[4., 4.]], dtype=torch.float64)
    """
    a, b = a.flatten(1), b.flatten(1)
    if len(a) == 0 or len(b) == 0:
        return a.new_zeros(len(a), len(b))
    centre = b.mean(0)  # the common part would only cost digits in the difference below
    a, b = a - centre, b - centre
    return ((a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T).clamp(min=0)


def paired_squares(a: Float[Tensor, "pair ..."], b: Float[Tensor, "pair ..."]) -> Float[Tensor, " pair"]:
    """Return the squared Euclidean distance of each pair."""
    return (a - b).flatten(1).square().sum(1)


def max_errors(a: Float[Tensor, "pair ..."], b: Float[Tensor, "pair ..."]) -> Float[Tensor, " pair"]:
    """Return the largest difference of any value of each pair."""
    return (a - b).flatten(1).abs().amax(1)


def psnr(a: Float[Tensor, "pair ..."], b: Float[Tensor, "pair ..."]) -> Float[Tensor, " pair"]:
    """Return the peak signal-to-noise ratio of each pair in decibels; infinite for equal inputs."""
    return -10 * (a - b).flatten(1).square().mean(1).log10()


def cross_correlations(
    a: Float[Tensor, "candidate ..."], b: Float[Tensor, "example ..."]
) -> Float[Tensor, "candidate example"]:
    """Return the normalised cross-correlation of every pair, between -1 and 1; 0 where an input is constant."""
    return standardise(a) @ standardise(b).T


def paired_correlations(a: Float[Tensor, "pair ..."], b: Float[Tensor, "pair ..."]) -> Float[Tensor, " pair"]:
    """Return the normalised cross-correlation of each pair."""
    return (standardise(a) * standardise(b)).sum(1)


def ssim(a: Float[Tensor, "pair ..."], b: Float[Tensor, "pair ..."]) -> Float[Tensor, " pair"]:
    """Return the structural similarity of each pair of images; NaN for tables and images less than three wide.

    The mean over all windows and channels, with uniform windows and sample covariances (Wang et al. 2004).
    """
    shape = a.shape[1:]
    window = min(SSIM_WINDOW, *(side - (side + 1) % 2 for side in shape[-2:])) if len(shape) in (2, 3) else 0
    if window < 3:
        return torch.full((len(a),), float("nan"), dtype=torch.float64)
    pairs = [torch.split(images, PAIRS_AT_ONCE) for images in (a, b)]
    return torch.cat([_mean_similarity(x, y, window) for x, y in zip(*pairs, strict=True)])


def _mean_similarity(a: Float[Tensor, "pair ..."], b: Float[Tensor, "pair ..."], window: int) -> Float[Tensor, " pair"]:
    a, b = (images.double()[:, None].flatten(1, -3) for images in (a, b))
    mean_a, mean_b, square_a, square_b, product = (
        torch.nn.functional.avg_pool2d(values, window, stride=1) for values in (a, b, a * a, b * b, a * b)
    )
    sample = window**2 / (window**2 - 1)
    covariance = sample * (product - mean_a * mean_b)
    variances = sample * (square_a - mean_a**2 + square_b - mean_b**2)
    first, second = STABILISERS
    scores = (2 * mean_a * mean_b + first) * (2 * covariance + second)
    scores = scores / ((mean_a**2 + mean_b**2 + first) * (variances + second))
    return scores.flatten(1).mean(1)
