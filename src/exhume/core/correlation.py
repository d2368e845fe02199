"""Correlations of inputs, and how well independent runs agree on a candidate."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

ROWS_AT_ONCE = 4096
"""Candidates that are correlated with all others in one matrix product, which bounds the memory."""


def standardise(inputs: Float[Tensor, "input ..."]) -> Float[Tensor, "input value"]:
    """Return flat inputs without mean and of unit length, so that inner products are correlations.

    Constant inputs become zero.
    """
    flat = inputs.flatten(1)
    return torch.nn.functional.normalize(flat - flat.mean(1, keepdim=True), dim=1)


def agreement_between_runs(
    inputs: Float[Tensor, "candidate ..."], run: Int[Tensor, " candidate"]
) -> Float[Tensor, " candidate"]:
    """Return the highest correlation of each candidate with a candidate of any other run, from 0 to 1.

    Runs from independent starts that arrive at the same picture were led there by the weights. A single run has
    agreement 0.
    """
    unit = standardise(inputs)
    best = unit.new_zeros(len(unit))
    for first in range(0, len(unit), ROWS_AT_ONCE):
        rows = slice(first, first + ROWS_AT_ONCE)
        is_same_run = run[rows][:, None] == run
        best[rows] = (unit[rows] @ unit.T).masked_fill(is_same_run, 0.0).amax(1)
    return best.clamp(0, 1)
