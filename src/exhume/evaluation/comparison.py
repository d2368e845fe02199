"""Lay candidates beside examples and score every pair."""

import torch
from jaxtyping import Float
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


def example_distances(
    candidates: Float[Tensor, "candidate ..."], examples: Float[Tensor, "example ..."], scale: UnitScale
) -> Float[Tensor, " example"]:
    """Return the squared distance from each example to the nearest candidate, in unit values."""
    return _nearest(_finite_or_far(squared_distances(scale(candidates.cpu()), scale(examples.cpu()))))


def compare(
    candidates: Float[Tensor, "candidate ..."], split: Split, scale: UnitScale, matching: str = "greedy"
) -> Comparison:
    """Match candidates with the examples of a split, and score the pairs in unit values.

    A candidate that holds a value which is not finite takes no part: nothing is near it.
    """
    found, examples = scale(candidates.cpu()), scale(split.inputs.cpu())
    distances = _finite_or_far(squared_distances(found, examples))
    pairs = match(distances, matching)
    a, b = found[pairs[:, 0]], examples[pairs[:, 1]]
    scores = paired_squares(a, b)
    order = scores.argsort(stable=True)  # recomputed without the rounding of the table, so almost sorted already
    pairs, scores, a, b = pairs[order], scores[order], a[order], b[order]
    finite = distances.isfinite().all(1) if len(examples) else torch.zeros(len(found), dtype=torch.bool)
    nearest = torch.full((len(found),), -1)
    nearest_distances, nearest_errors = (torch.full((len(found),), torch.inf, dtype=torch.float64) for _ in range(2))
    if bool(finite.any()):
        nearest[finite] = distances[finite].argmin(1)
        beside = examples[nearest[finite]]
        nearest_distances[finite] = paired_squares(found[finite], beside)
        nearest_errors[finite] = max_errors(found[finite], beside)
    return Comparison(
        examples=split.inputs.cpu(),
        labels=split.labels.cpu(),
        pairs=pairs,
        curve=scores,
        ssim=ssim(a, b),
        ncc=paired_correlations(a, b),
        psnr=psnr(a, b),
        max_error=max_errors(a, b),
        example_distances=_nearest(distances),
        nearest_examples=nearest,
        nearest_distances=nearest_distances,
        nearest_errors=nearest_errors,
    )


def _finite_or_far(distances: Float[Tensor, "candidate example"]) -> Float[Tensor, "candidate example"]:
    return torch.where(distances.isfinite(), distances, torch.inf)


def _nearest(distances: Float[Tensor, "candidate example"]) -> Float[Tensor, " example"]:
    far = distances.new_full((1, distances.shape[1]), torch.inf)  # also when there is no candidate at all
    return torch.cat([distances, far]).amin(0)
