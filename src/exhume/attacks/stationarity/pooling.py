"""Pool the candidates of several runs: average near-duplicates under the most confident one."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.core.correlation import standardise
from exhume.core.suppression import suppress_neighbours


def merge_near_duplicates(
    inputs: Float[Tensor, "candidate value"], confidence: Float[Tensor, " candidate"], similar: float
) -> tuple[Float[Tensor, "kept value"], Int[Tensor, " kept"]]:
    """Average near-duplicates, the most confident candidate first.

    Args:
        inputs: the candidates of all runs.
        confidence: the attacker's confidence in each.
        similar: the least correlation of a near-duplicate with the candidate it is averaged into; above 1: none is.

    Returns:
        The averages, and the index of the most confident candidate of each.

    >>> merge_near_duplicates(torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 3.0]]), torch.tensor([0.5, 0.9, 0.8]), 0.9)
    (tensor([[1., 0.],
            [0., 2.]]), tensor([1, 2]))
    """
    unit = standardise(inputs)
    order = confidence.argsort(descending=True, stable=True)
    groups = list(suppress_neighbours(order, lambda place: unit @ unit[place] >= similar))
    means = torch.stack([inputs[group.to(inputs.device)].mean(0) for _, group in groups])
    return means, torch.tensor([leader for leader, _ in groups], device=inputs.device)
