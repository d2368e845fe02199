"""How much of the final weights is still the noise of the random start.

Without weight decay the upper layers keep most of their random initial matrix, which no training input explains. A
first layer that started near zero consists of training inputs only. Where both hold, the first layer alone is the
better evidence.
"""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.clues.subspace import noise_floor

VISIBLE = 0.1
"""Noise of the random start, as a fraction of a weight's squared norm, from which it counts as visible."""
LEAST_SIDE = 8
"""Shorter side of a matrix below which it has too few singular values to separate noise from signal."""


def start_noise(weight: Float[Tensor, "unit ..."]) -> float | None:
    """Return the fraction of a weight's squared norm that is noise of the random start; None where it is too small.

    The singular values of a random matrix follow the law of Marchenko and Pastur. Training adds a matrix of low rank,
    which leaves the small singular values in place.

    >>> start_noise(torch.randn(64, 64, generator=torch.Generator().manual_seed(0))) > 0.8
    True
    """
    if weight.ndim < 2 or min(weight.flatten(1).shape) < LEAST_SIDE:
        return None
    matrix = weight.flatten(1).double()
    noise = noise_floor(torch.linalg.svdvals(matrix), tuple(matrix.shape))
    return min(1.0, noise**2 * matrix.numel() / max(float(matrix.square().sum()), 1e-300))


def upper_layers_look_random(names: Sequence[str], weights: Mapping[str, Tensor]) -> bool:
    """Return whether the layers between the first and the last still show their random start and the first does not.

    The last layer is left out: it has one row per output, and training fills all of its singular values as noise would.
    """
    first, upper = split_first_layer(names)
    between = [name for name in upper if _layer(name) != _layer(names[-1])]
    below, above = (
        [noise for name in group if (noise := start_noise(weights[name])) is not None] for group in (first, between)
    )
    return bool(below and above) and max(below) < VISIBLE <= max(above)


def split_first_layer(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split parameter names into those of the first layer and those above it.

    >>> split_first_layer(["layer1.weight", "layer1.bias", "layer2.weight"])
    (['layer1.weight', 'layer1.bias'], ['layer2.weight'])
    """
    first = [name for name in names if _layer(name) == _layer(names[0])]
    return first, [name for name in names if name not in first]


def _layer(parameter: str) -> str:
    return parameter.rpartition(".")[0]
