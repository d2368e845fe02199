"""Which units an input never fired, told by the two ends of a training.

Gates move during a training, so a unit that is off at both ends may have fired in between. The pre-activation of a unit
moves in proportion to the change of its weights. If it moved like a Brownian bridge between its two ends ``m0`` and
``m1``, both below zero, it crossed zero with probability ``exp(-2 m0 m1 / τ²)``, where ``τ`` grows with the change. So
units are ranked by ``m0 m1 / ‖Δw‖²``.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.gates.problem import RowProblem


def rank_silence(problem: RowProblem, codes: Float[Tensor, "candidate rank"]) -> Float[Tensor, "candidate unit"]:
    """Score how certainly each unit never fired on each input; minus infinity where it is on at an end.

    Args:
        problem: what the inputs trained.
        codes: the inputs in coordinates of the basis, up to a positive factor.
    """
    before, after = (codes @ gate.T for gate in problem.gates)
    is_off = (before < 0) & (after < 0) & problem.informative.bool()
    score = torch.log((before * after).clamp(min=1e-300)) - 2 * torch.log(problem.movement.clamp(min=1e-150))
    return score.masked_fill(~is_off, -torch.inf)
