"""Fit inputs to on/off patterns: an input is on the on-side of every gate's halfspace that it opens."""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.core.devices import numbers_at_once
from exhume.core.progress import Tick, no_tick


def fit_halfspaces(
    features: Float[Tensor, "gate free"],
    on: Float[Tensor, "candidate unit"],
    codes: Float[Tensor, "candidate free"],
    ridge: float,
    steps: int = 2,
    base: Float[Tensor, "candidate gate"] | float = 0.0,
    tick: Tick = no_tick,
) -> Float[Tensor, "candidate free"]:
    """Fit the inputs whose gates match the units that are ``on``, by Newton steps of a logistic regression.

    A unit is off if it is off both before and after training, and on if it is on at either time; at which of the two is
    weighed by the current input.

    Args:
        features: the weights of the gates in coordinates of the inputs; all units before training, then all after it.
        on: how likely each unit is on.
        codes: the inputs to improve, in the same coordinates.
        ridge: penalty on squared coordinates.
        steps: number of Newton steps.
        base: the part of the margins that is known already.
        tick: called between steps; may raise to stop.
    """
    identity = torch.eye(features.shape[1], dtype=features.dtype, device=features.device)
    for _ in range(steps):
        margins = base + codes @ features.T
        probability = torch.sigmoid(margins)
        before, after = (1 - probability).chunk(2, dim=1)
        labels = probability * (on / (1 - before * after).clamp(min=1e-6)).repeat(1, 2)
        curvature = probability * (1 - probability) + 1e-4
        slope = probability - labels
        hessian = weighted_gram(features.T, curvature, tick) + ridge * identity
        step = torch.linalg.solve(hessian, (slope @ features + ridge * codes)[..., None])[..., 0]
        # The step is shortened so that no margin moves by more than four.
        longest = (step @ features.T).abs().amax(dim=1, keepdim=True).clamp(min=1e-30)
        codes = codes - step * (4.0 / longest).clamp(max=1.0)
    return codes


def weighted_gram(
    vectors: Float[Tensor, "rank unit"], weights: Float[Tensor, "candidate unit"], tick: Tick = no_tick
) -> Float[Tensor, "candidate rank rank"]:
    """Return ``V diag(w) Vᵀ`` for each row of weights, in chunks that fit into memory.

    For more rows of weights than vectors, it is one product with the pairwise products of the vectors.
    ``tick`` is called before each chunk; it may raise to stop.
    """
    rank, most = len(vectors), numbers_at_once(vectors.device)
    if rank <= len(weights) and rank * vectors.numel() <= most:
        tick()
        pairs = (vectors[:, None] * vectors).reshape(rank * rank, -1)
        return (weights @ pairs.T).reshape(-1, rank, rank)
    size = max(1, most // vectors.numel())
    grams = []
    for at in range(0, max(len(weights), 1), size):
        tick()
        grams.append((vectors * weights[at : at + size, None, :]) @ vectors.T)
    return torch.cat(grams)
