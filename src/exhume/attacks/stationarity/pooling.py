"""What several runs found, as one set: which candidates they agree on, and near duplicates averaged."""

import torch
from jaxtyping import Float
from torch import Tensor

SLICE = 4096
"""How many candidates are correlated with all others at once."""


def standardised(inputs: Float[Tensor, "candidate value"]) -> Float[Tensor, "candidate value"]:
    """Return inputs without mean and of unit length, so that inner products are correlations."""
    centred = inputs - inputs.mean(1, keepdim=True)
    norms: Tensor = centred.norm(dim=1, keepdim=True)
    return centred / norms.clamp(min=1e-12)


def agreement(inputs: Float[Tensor, "run candidate value"]) -> Float[Tensor, "run candidate"]:
    """Return how well any *other* run knows each candidate: the highest correlation, from 0 to 1; 0 for one run alone.

    Runs from independent starts that arrive at the same picture were led there by the weights.
    """
    runs, candidates, _ = inputs.shape
    unit = standardised(inputs.flatten(0, 1))
    best = unit.new_zeros(len(unit))
    for run in range(runs):
        own = unit[run * candidates : (run + 1) * candidates]
        others = torch.cat([unit[: run * candidates], unit[(run + 1) * candidates :]])
        if len(others):
            found = [(some @ others.T).amax(1) for some in torch.split(own, SLICE)]
            best[run * candidates : (run + 1) * candidates] = torch.cat(found)
    return best.clamp(0, 1).reshape(runs, candidates)


def merged(
    inputs: Float[Tensor, "candidate value"], confidence: Float[Tensor, " candidate"], similar: float
) -> tuple[Float[Tensor, "kept value"], Float[Tensor, " kept"], list[int]]:
    """Average near duplicates, the most confident candidate first.

    Args:
        inputs: the candidates of all runs.
        confidence: how sure the attacker is of each.
        similar: the correlation above which a candidate is one of an earlier one's duplicates; 1 or more: never.

    Returns:
        The averages, the confidence of each one's leader, and the leaders' places.

    >>> merged(torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 3.0]]), torch.tensor([0.5, 0.9, 0.8]), 0.9)[0]
    tensor([[1., 0.],
            [0., 2.]])
    """
    unit = standardised(inputs)
    is_free = torch.ones(len(inputs), dtype=torch.bool, device=inputs.device)
    means, leaders = [], []
    for place in confidence.argsort(descending=True, stable=True).tolist():
        if not bool(is_free[place]):
            continue
        alike = is_free & (unit @ unit[place] >= similar)
        alike[place] = True
        is_free &= ~alike
        means.append(inputs[alike].mean(0))
        leaders.append(place)
    return torch.stack(means), confidence[leaders], leaders
