"""8-bit images from a photograph of scikit-image, and spans of them without any training."""

import functools

import torch
from skimage import data

from exhume.attacks.lattice.whole_vectors import LevelSpan
from exhume.attacks.levels import STEPS


@functools.cache
def photographs(count, side=14, seed=0):
    """Return small 8-bit images in [0, 1] with much contrast, every fourth pixel of parts of one photograph."""
    step = 4 * side
    starts = range(seed % step, 512 - step + 1, step // 2)
    whole = torch.from_numpy(data.camera().copy()).double()
    parts = [whole[row : row + step : 4, column : column + step : 4].flatten() for row in starts for column in starts]
    every = torch.stack(parts)
    return every[every.std(dim=1).argsort(descending=True)[:count]] / STEPS


def in_levels(images):
    """Return images in levels, with their constant."""
    return torch.cat([images * STEPS, torch.ones_like(images[:, :1])], dim=1)


def span_of(images, noise=1e-9, seed=1):
    """Return the span of images as evidence shows it: random combinations, with noise."""
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(len(images), 4 * len(images), generator=generator, dtype=torch.float64)
    change = in_levels(images).T @ mixing
    change = change + noise * torch.randn(change.shape, generator=generator, dtype=torch.float64)
    left, strengths, _ = torch.linalg.svd(change, full_matrices=False)
    rank = len(images)
    return LevelSpan(vectors=left[:, :rank] * strengths[:rank], noise=noise)


def are_same_images(found, images):
    """Return whether all images were found, and nothing else, in whatever order."""
    order = torch.cdist(found.double(), images.double()).argmin(dim=1)
    return len(found) == len(images) == len(set(order.tolist())) and bool((found - images[order]).abs().max() < 1e-6)
