"""Match candidates with examples and score every pair."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.evaluation.distances import (
    UnitScale,
    max_errors,
    paired_correlations,
    paired_squares,
    psnr,
    squared_distances,
    ssim,
)
from exhume.evaluation.matching import match
from exhume.records import Comparison, Split

SLICE = 1024
"""Columns of a table of distances computed at once; the whole table of a large data set would not fit in memory."""


def compare(
    candidates: Float[Tensor, "candidate ..."], split: Split, scale: UnitScale, matching: str = "greedy"
) -> Comparison:
    """Match candidates with the examples of a split, and score the pairs in unit values.

    A candidate with a value that is not finite is left out: nothing is near it.
    """
    found, examples = scale(candidates.cpu()), scale(split.inputs.cpu())
    distances = squared_distances(found, examples)
    pairs = match(distances, matching)
    curve = paired_squares(found[pairs[:, 0]], examples[pairs[:, 1]])
    order = curve.argsort(stable=True)  # free of the rounding of the table, and so almost sorted already
    pairs = pairs[order]
    a, b = found[pairs[:, 0]], examples[pairs[:, 1]]
    nearest = _nearest(distances.T)
    has_nearest = nearest >= 0
    nearest_errors = torch.full((len(found),), torch.inf, dtype=torch.float64)
    nearest_errors[has_nearest] = max_errors(found[has_nearest], examples[nearest[has_nearest]])
    return Comparison(
        examples=split.inputs.cpu(),
        labels=split.labels.cpu(),
        pairs=pairs,
        curve=curve[order],
        ssim=ssim(a, b),
        ncc=paired_correlations(a, b),
        psnr=psnr(a, b),
        max_error=max_errors(a, b),
        example_distances=_distances_to(examples, found, _nearest(distances)),
        nearest_examples=nearest,
        nearest_distances=_distances_to(found, examples, nearest),
        nearest_errors=nearest_errors,
    )


def example_distances(
    candidates: Float[Tensor, "candidate ..."], examples: Float[Tensor, "example ..."], scale: UnitScale
) -> Float[Tensor, " example"]:
    """Return the squared distance from each example to the nearest candidate, in unit values."""
    found, every = scale(candidates.cpu()), scale(examples.cpu())
    slices = [
        _distances_to(some, found, _nearest(squared_distances(found, some)))
        for some in torch.split(every, SLICE)
        if len(some)
    ]
    return torch.cat([every.new_zeros(0), *slices])


def neighbour_distances(examples: Float[Tensor, "example ..."], scale: UnitScale) -> Float[Tensor, " example"]:
    """Return the squared distance from each example to the nearest other one, in unit values."""
    every = scale(examples.cpu())
    slices = [every.new_zeros(0)]
    for first in range(0, len(every), SLICE):
        some = every[first : first + SLICE]
        distances = squared_distances(every, some)
        itself = torch.arange(len(some))
        distances[first + itself, itself] = torch.inf
        slices.append(_distances_to(some, every, _nearest(distances)))
    return torch.cat(slices)


def relative_distances(
    candidates: Float[Tensor, "candidate ..."], examples: Float[Tensor, "example ..."], scale: UnitScale
) -> Float[Tensor, " example"]:
    """Return the squared distance from each example to the nearest candidate, relative to the nearest other example.

    It is infinite for two equal examples that a candidate meets: which one was recovered is undecided.
    """
    ratios = example_distances(candidates, examples, scale) / neighbour_distances(examples, scale)
    return ratios.nan_to_num(torch.inf)


def _nearest(distances: Float[Tensor, "row column"]) -> Int[Tensor, " column"]:
    """Return for each column the row of its smallest finite value, or -1 where there is none."""
    if len(distances) == 0:
        return torch.full((distances.shape[1],), -1)
    smallest, row = distances.nan_to_num(torch.inf, torch.inf).min(0)
    return torch.where(smallest.isfinite(), row, -1)


def _distances_to(
    items: Float[Tensor, "item ..."], others: Float[Tensor, "other ..."], nearest: Int[Tensor, " item"]
) -> Float[Tensor, " item"]:
    """Return the squared distance from each item to its nearest other, free of the rounding of a table."""
    distances = items.new_full((len(items),), torch.inf)
    known = nearest >= 0
    distances[known] = paired_squares(items[known], others[nearest[known]])
    return distances
