"""Prove that images of whole numbers were trained on: chance makes none, and no other choice of images fits.

Three things could make a wrong image. *Chance*: a span without whole numbers may pass near some; the values that the
search did not use refute that. *Another choice*: an image plus a difference of two others is a combination with whole
numbers as well. It leaves the range unless the difference is small, so every image must leave the range when short
vectors of the lattice with the constant 0 are added. *A missing part*: where reduction finds a lattice with fewer
dimensions than the span has, an image of it is in the span all the same.
"""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhume.attacks.lattice.images import PREVIEWED, FoundImages, are_inside
from exhume.attacks.lattice.reduction import reduce_basis
from exhume.attacks.lattice.whole_vectors import LevelSpan, WholeVectors
from exhume.attacks.levels import LEAST_DISTANCE, STEPS, log_p_near

TOLD = 1e-3
"""Least size of a value in the span, relative to the largest, that is not the same in all inputs."""
SAME_DIRECTION = 1e-3
"""Largest difference of the directions of two values that have one ratio in all inputs."""


def log_p_images(images: Float[Tensor, "image value"], span: LevelSpan, whole: WholeVectors) -> Float[Tensor, " image"]:
    """Bound the log probability that images of whole numbers lie in a span by chance.

    As many values as the span has dimensions can be chosen, in ``256`` ways each, which a union bound accounts for.
    The values that the search used predict the others. In a span without whole numbers these lie anywhere between two.
    """
    predicted = (span.vectors @ span.coefficients(whole.used, images[:, whole.used])).T
    telling = _telling_values(span, whole)
    distances = 2 * (predicted - predicted.round()).abs()[:, telling].clamp(min=LEAST_DISTANCE / 2)
    counts = torch.full((len(images),), len(telling))
    choices = span.rank * math.log(STEPS + 1)
    return (log_p_near(counts, distances.square().sum(dim=1)) + choices).clamp(max=0.0)


def _telling_values(span: LevelSpan, whole: WholeVectors) -> Int[Tensor, " value"]:
    """Return values that were not used and of which none follows from another one.

    A value that is the same in all inputs tells nothing, and two that have one ratio in all inputs tell the same.
    """
    size = span.vectors.norm(dim=1)
    is_told = size > TOLD * size.max()
    is_told[whole.used] = False
    told = is_told.nonzero()[:, 0]
    directions = span.vectors[told] / size[told, None]
    directions = directions * directions.gather(1, directions.abs().argmax(dim=1, keepdim=True)).sign()
    groups = torch.unique((directions / SAME_DIRECTION).round(), dim=0, return_inverse=True)[1]
    first = torch.full((int(groups.max()) + 1 if len(groups) else 0,), len(told))
    first = first.scatter_reduce(0, groups, torch.arange(len(told)), "amin")
    telling: Tensor = told[first]
    return telling


def are_only_choice(found: FoundImages, generator: torch.Generator) -> Bool[Tensor, " image"]:
    """Return which images leave their range, or become other images, when a short vector with the constant 0 is added.

    The vectors are those of a reduced basis, and sums and differences of two.
    """
    images = found.images
    if len(images) == 0 or len(found.basis) < 2:
        return torch.ones(len(images), dtype=torch.bool)
    first, others = images[0], torch.cat([found.rest, images[1:]])
    differences = others - (others[:, -1:] / STEPS).round() * first
    differences = (reduce_basis(differences) @ differences).round()
    one, two = torch.triu_indices(len(differences), len(differences), 1)
    short = torch.cat([differences, differences[one] + differences[two], differences[one] - differences[two]])
    short = torch.cat([short, -short])
    few = torch.randperm(images.shape[1] - 1, generator=generator)[:PREVIEWED]
    is_only = []
    for image in images:
        preview = image[few] + short[:, few]
        near = short[((preview >= 0) & (preview <= STEPS)).all(dim=1)]
        others = (image + near)[are_inside(image + near)]
        is_known = (others[:, None] == images).all(dim=2).any(dim=1)
        is_only.append(bool(is_known.all()))
    return torch.tensor(is_only, dtype=torch.bool)
