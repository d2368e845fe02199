"""How surprising it is that a unit fired in mid-training which is off at all known weights.

A unit close to firing may well have fired in between; one that is far from it did so hardly ever.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.gates.problem import RowProblem


def firing_distance(
    problem: RowProblem,
    before: Float[Tensor, "*trial row unit"],
    after: Float[Tensor, "*trial row unit"],
    lengths: Float[Tensor, "*trial row"],
) -> Float[Tensor, "*trial row unit"]:
    """Return how far units are from firing on inputs, for units that are off at both ends; 0 for others.

    A unit whose margins at the two ends are ``m0`` and ``m1`` is as far from firing as ``√(m0 m1)`` relative to the
    distance that its weights moved. Where only one end is known, it is relative to the root mean square of the margins.

    Args:
        problem: what the units are units of.
        before: pre-activations before training.
        after: pre-activations after it.
        lengths: norms of the inputs.
    """
    margins = (before.clamp(max=0) * after.clamp(max=0)).sqrt()
    if problem.gates_are_exact:
        return torch.where(margins > problem.rounding * lengths[..., None] * problem.before.norm(dim=1), torch.inf, 0.0)
    informative = problem.gated.bool()
    moved = (problem.after - problem.before).norm(dim=1)
    if bool((moved[informative] > 0).any()):
        covered: Tensor = moved.clamp(min=problem.certificate.least_movement * float(moved[informative].median()))
        return margins / (covered * lengths[..., None]).clamp(min=1e-300)
    typical = before[..., informative].square().mean(dim=-1, keepdim=True).sqrt()
    return margins / typical.clamp(min=1e-300)


def firing_probability(
    problem: RowProblem,
    before: Float[Tensor, "*trial row unit"],
    after: Float[Tensor, "*trial row unit"],
    lengths: Float[Tensor, "*trial row"],
) -> Float[Tensor, "*trial row unit"]:
    """Return how likely units that are off at both ends fired in between (arguments as :func:`firing_distance`)."""
    rules = problem.certificate
    distance = firing_distance(problem, before, after, lengths)
    return torch.exp(-distance / rules.reach).clamp(rules.unforeseen, 1 - rules.unforeseen)
