"""Gradient sums in the coordinates of a search space, and the metric of the first layer's residual there."""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.clues.search_space import SearchSpace
from exhume.gradient_sums.interface import GradientSums

FAINT = 1e-4
"""Smallest squared strength of a direction, relative to the strongest, up to which weak directions are amplified.
Weaker ones are mostly rounding of float32 weights."""


def move_into_space(
    space: SearchSpace, sums: GradientSums, first: Float[Tensor, "unit ..."], balance: float
) -> tuple[GradientSums, Float[Tensor, "unit ..."], Float[Tensor, "coordinate coordinate"] | None]:
    """Return sums and the first layer's target in coordinates of a space, and the metric of that layer's residual.

    Sums that take inputs only, and a space of all inputs, leave everything as it is.
    """
    if space.basis is None or not sums.takes_coordinates:
        return sums, first, None
    inside = first @ space.basis.to(first)
    return sums.within(space.basis), inside, balanced_metric(inside, balance) if balance > 0 else None


def balanced_metric(change: Float[Tensor, "unit coordinate"], power: float) -> Float[Tensor, "coordinate coordinate"]:
    """Return the metric ``(ΔᵀΔ)^−power``, scaled so that the change ``Δ`` keeps its squared norm.

    A change has a few strong directions, which the inputs have in common, and many weak ones, which distinguish them.
    The part that moving features leave unexplained is proportional to the strength, so that under plain squares the
    errors along strong directions would outweigh the weak ones. Power 1 counts all directions alike, 0 is the plain
    square.
    """
    gram = change.mT @ change
    strengths, directions = torch.linalg.eigh(gram)
    raised: Tensor = strengths.clamp(min=FAINT * float(strengths[-1])).pow(-power)
    metric: Tensor = (directions * raised) @ directions.mT
    return metric * (gram.trace() / (gram * metric).sum())
