"""The span of the training inputs, from the final weights alone.

A first layer that started near zero, or whose initial weights have decayed, *is* its own change: each of its rows is a
sum of training inputs. The number of singular values above the noise of the initial weights is then the number of
inputs, and their singular vectors span the inputs, without knowledge of the initial weights.
"""

from dataclasses import replace

import torch

from exhume.clues.first_layer import read_first_layer
from exhume.clues.subspace import LARGEST_RANK, LIKE_NOISE, InputSubspace, decompose, widest_gap
from exhume.core.errors import Refusal
from exhume.records import AttackerView

LEAST_VALUES = 8
"""Number of singular values below which noise cannot be estimated from them."""


def span_of_final_weights(view: AttackerView) -> InputSubspace | None:
    """Find the span of the inputs in the final weights of the first layer; return None where it does not show.

    Count the singular values above the noise. A gap above the noise is ignored, since a few directions that all units
    share stand out. A gap whose lower end is noise or float32 rounding takes precedence, because rounding noise has no
    sharp edge.
    """
    zeros = {name: torch.zeros_like(weight) for name, weight in view.final.items()}
    try:
        layer = read_first_layer(replace(view, initial=zeros, gradient=None, more_gradients=(), optimiser_state=None))
    except Refusal:
        return None
    if not layer.reads_input:
        return None
    parts = decompose(layer.change)
    rank, count = parts.above_noise, len(parts.spectrum)
    if rank:
        rank = widest_gap(parts, LIKE_NOISE) or rank
    if not 0 < rank <= LARGEST_RANK * count or count < LEAST_VALUES:
        return None
    rest = float(parts.spectrum[rank:].square().sum() / (len(parts.left) * parts.right.shape[1])) ** 0.5
    return replace(parts.subspace(rank, layer), noise=max(parts.noise, rest))
