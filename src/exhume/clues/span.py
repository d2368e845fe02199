"""The span of the training inputs, read off the final weights alone.

A first layer that started near zero, or whose start weight decay has forgotten, *is* its own change: its rows are sums
of training inputs and of nothing else. Then the singular values above the noise of the start count the inputs, and the
directions that belong to them span the inputs, without anybody knowing where training began.
"""

from dataclasses import replace

import torch

from exhume.clues.first_layer import first_layer
from exhume.clues.subspace import InputSubspace, decomposed, input_subspace
from exhume.core.errors import Refusal
from exhume.records import AttackerView

LEAST_VALUES = 8
"""Of singular values, below which none of them can be called noise."""


def input_span(view: AttackerView) -> InputSubspace | None:
    """Return the span of the inputs, from the change of the weights where their start is known; None: hidden.

    With the start unknown, singular values count by standing above the noise that the lower ones follow. The widest gap
    says little here: a few directions that all units share stand far above those that tell inputs apart.
    """
    if view.initial is not None:
        try:
            return input_subspace(view)
        except Refusal:
            pass  # a change of no visible rank (Adam, say): the weights themselves may still show one
    nothing = {name: torch.zeros_like(weight) for name, weight in view.final.items()}
    try:
        layer = first_layer(replace(view, initial=nothing))
    except Refusal:
        return None
    if not layer.reads_input:
        return None
    parts = decomposed(layer.change)
    rank, most = parts.above_noise, 0.75 * len(parts.spectrum)
    # The lower quarter of the values must be noise for the noise to be known, and there must be some of them.
    return parts.subspace(rank, layer) if 0 < rank <= most and len(parts.spectrum) >= LEAST_VALUES else None
