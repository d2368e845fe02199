"""Gradient sums in the coordinates of a search space, and the metric of the first layer's residual there."""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.clues.search_space import SearchSpace
from exhume.gradient_sums.dense import DenseSums

FAINT = 1e-4
"""Directions weaker than this, relative to the strongest squared, are not made any stronger."""
UNIT_PROBES = 16
"""How many gradients are measured to find out how large they are."""


def moved_into(
    space: SearchSpace, sums: DenseSums, first: Float[Tensor, "unit value"], balance: float
) -> tuple[DenseSums, Float[Tensor, "unit coordinate"], Float[Tensor, "coordinate coordinate"] | None]:
    """Return dense sums and the first layer's target in coordinates of a space, and the metric of that layer."""
    if space.basis is None:
        return sums, first, None
    inside = first @ space.basis.to(first)
    return sums.within(space.basis), inside, balanced(inside, balance) if balance > 0 else None


def balanced(change: Float[Tensor, "unit coordinate"], power: float) -> Float[Tensor, "coordinate coordinate"]:
    """Return the metric ``(ΔᵀΔ)^−power``, scaled so that the change itself keeps its size.

    A change has a few strong directions, those the inputs have in common, and many weak ones that tell inputs apart.
    What the features' drift leaves unexplained is proportional to the strength, so that plain squares would let the
    errors of the strong directions drown the weak ones. Power 1 counts all directions alike, 0 is the plain square.
    """
    gram = change.mT @ change
    strengths, directions = torch.linalg.eigh(gram)
    raised: Tensor = strengths.clamp(min=FAINT * float(strengths[-1])).pow(-power)
    metric: Tensor = (directions * raised) @ directions.mT
    return metric * (gram.trace() / (gram * metric).sum())
