"""The span of the training inputs, from the final weights alone.

A first layer that started near zero, or whose initial weights have decayed, *is* its own change: each of its rows is a
sum of training inputs. The number of singular values above the noise of the initial weights is then the number of
inputs, and their singular vectors span the inputs, without knowledge of the initial weights. The same holds for the
features that a dense layer above others reads.
"""

from dataclasses import replace

import torch

from exhume.clues.evidence import Evidence
from exhume.clues.first_layer import FirstLayer, read_first_layer
from exhume.clues.gate_layer import read_lowest_gate_layer
from exhume.clues.subspace import LARGEST_RANK, LIKE_NOISE, WIDE_GAP, InputSubspace, decompose, widest_gap
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
    try:
        layer = read_first_layer(view, _change_from_zero(view))
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


def span_of_final_features(view: AttackerView) -> InputSubspace:
    """Find the span of the features that the lowest dense ReLU layer above other layers reads, in the final weights.

    Weight decay leaves sums of features, where they no longer move. What movement is left is no independent noise: its
    singular values fall slowly. So the rank is where neighbouring singular values differ most.

    Raises:
        Refusal: when there is no such layer, or its singular values have no wide gap.
    """
    layer = read_lowest_gate_layer(view, _change_from_zero(view))
    parts = decompose(layer.change)
    half = len(parts.spectrum) // 2 + 1
    ratios = parts.spectrum[: half - 1] / parts.spectrum[1:half].clamp(min=torch.finfo(torch.float64).tiny)
    if len(parts.spectrum) < LEAST_VALUES or float(ratios.max()) < WIDE_GAP:
        raise Refusal(_no_gap(layer))
    rank = int(ratios.argmax()) + 1
    rest = float(parts.spectrum[rank:].square().sum() / (len(parts.left) * parts.right.shape[1])) ** 0.5
    return replace(parts.subspace(rank, layer), noise=rest)


def _no_gap(layer: FirstLayer) -> str:
    return (
        f"The final weights of layer {layer.name!r} have no clear number of directions: weight decay did not remove "
        "the initial weights, the features below still moved, or there are too many inputs for its units."
    )


def _change_from_zero(view: AttackerView) -> Evidence:
    """Return the final weights as the change of a training that started at zero."""
    zeros = {name: torch.zeros_like(weight) for name, weight in view.final.items()}
    return Evidence(
        kind="weight change", measured=view.final, reference=zeros, factor=1.0, before=zeros, after=view.final
    )
