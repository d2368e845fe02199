"""Judge a choice of images by what they would have contributed to the evidence: each must have the row of one input.

A complete choice of images determines their rows ``γ_i`` in ``Z = Σ_i [x_i; 1] γ_iᵀ``. In one gradient, the row of an
input is a combination of the signals that reach the layer from the outputs when the network sees that input, so few
numbers explain all units. In a wrong choice some rows are sums or differences of true ones, each taken a whole number
of times, and no image explains them.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.clues.first_layer import backward_signals
from exhume.clues.subspace import InputSubspace
from exhume.records import AttackerView

NOTICED = 0.1
"""Largest part of a row that its image leaves unexplained, relative to the least that it leaves of any combination of
the other rows; a row that is mixed in a whole number of times leaves more. Measured in up to 144 gradients of similar
images (three activations, 6 to 20 images): at most 5e-5 in right choices, 1.6 to 80 for some image of wrong ones."""


def have_own_rows(view: AttackerView, subspace: InputSubspace, images: Float[Tensor, "image value"]) -> bool:
    """Return whether each of a complete choice of images has the row of one input.

    Args:
        view: what the attacker holds.
        subspace: the span of the inputs; only one gradient, at known weights, decides.
        images: in network units, flat.
    """
    layer = subspace.layer
    if len(images) != subspace.rank or len(images) < 2 or not layer.evidence.is_local or layer.evidence.others:
        return False
    inputs = torch.cat([images, torch.ones_like(images[:, :1])], dim=1).to(subspace.basis)
    rows = torch.linalg.inv(inputs @ subspace.basis).T * subspace.strengths @ subspace.rows
    signals = backward_signals(view, layer.evidence.after, layer)
    for place in range(len(rows)):
        explained = signals((inputs[place] @ layer.after.T)[None])[0]
        axes = torch.linalg.qr(explained.T).Q
        left = rows - (rows @ axes) @ axes.T
        others = torch.cat([left[:place], left[place + 1 :]])
        if float(left[place].norm()) > NOTICED * float(torch.linalg.svdvals(others)[-1]):
            return False
    return True
