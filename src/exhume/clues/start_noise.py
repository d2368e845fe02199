"""How much the layers above the first can tell, read off the final weights alone.

Without weight decay the upper layers keep the random matrix they started as, and most of their squared size is noise
that no input explains. A first layer that started near zero has no such part: all of it is training inputs. Where both
is so, the first layer alone is the better witness.
"""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.clues.subspace import noise_floor

SHOWS = 0.1
"""The part of a squared matrix from which on noise of a start counts as visible."""
LEAST_SIDE = 8
"""The shorter side of a matrix below which its singular values are too few to tell noise from signal."""


def start_share(weight: Float[Tensor, "unit ..."]) -> float | None:
    """Return which part of a squared weight is the noise of a random start, by the lower end of its singular values.

    A random matrix has singular values of the law of Marchenko and Pastur; what training adds to it has a low rank and
    leaves the lower ones where they were. None: a bias, or a matrix too small to tell.

    >>> start_share(torch.randn(64, 64, generator=torch.Generator().manual_seed(0))) > 0.8
    True
    """
    if weight.ndim < 2 or min(weight.flatten(1).shape) < LEAST_SIDE:
        return None
    matrix = weight.flatten(1).double()
    noise = noise_floor(torch.linalg.svdvals(matrix), tuple(matrix.shape))
    return min(1.0, noise**2 * matrix.numel() / max(float(matrix.square().sum()), 1e-300))


def first_layer_only(names: Sequence[str], weights: Mapping[str, Tensor]) -> bool:
    """Tell whether the layers between the first and the last still show a random start, and the first one does not.

    The last layer has a row an output: what training wrote there fills all of its singular values, as noise would.
    """
    first, upper = parted(names)
    between = [name for name in upper if name.rpartition(".")[0] != names[-1].rpartition(".")[0]]
    below, above = (
        [share for name in some if (share := start_share(weights[name])) is not None] for some in (first, between)
    )
    return bool(below and above) and max(below) < SHOWS <= max(above)


def parted(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the parameters of the first layer, and those above it.

    >>> parted(["layer1.weight", "layer1.bias", "layer2.weight"])
    (['layer1.weight', 'layer1.bias'], ['layer2.weight'])
    """
    lowest = names[0].rpartition(".")[0]
    first = [name for name in names if name.rpartition(".")[0] == lowest]
    return first, [name for name in names if name not in first]
