"""The size that duals should have, from the sizes of the target and of gradients."""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.gradient_sums.interface import GradientSums, Sharpness

PROBES = 16
"""Number of gradients measured; their mean squared norm varies little beyond."""


def natural_unit(
    sums: GradientSums,
    inputs: Float[Tensor, "candidate value"],
    *,
    points: int,
    outputs: int,
    target_square: float,
    gradients: int,
    sharpness: Sharpness = None,
) -> float | None:
    """Return the size of duals with which ``gradients`` gradients add up to the target, or None if they vanish.

    If ``n`` orthogonal gradients of norm ``g`` add up to a target ``Δ``, their duals are ``‖Δ‖/(g·√n)``. The norm is
    measured at the first ``inputs``, at the first point, one output per input in turn.

    Args:
        sums: the gradient sums.
        inputs: what the sums take: flat inputs or coordinates.
        points: number of points of the sums.
        outputs: number of outputs of the network.
        target_square: ``‖Δ‖²``.
        gradients: the number ``n``.
        sharpness: of the smooth ReLUs.
    """
    probes = inputs[:PROBES]
    duals = torch.zeros(points, len(probes), outputs).to(probes)
    for number in range(len(probes)):
        duals[0, number, number % outputs] = 1.0
    square = float(sums.squared_norms(probes, duals, sharpness).mean())
    return (target_square / (square * gradients)) ** 0.5 if square > 0 else None
