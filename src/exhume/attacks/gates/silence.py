"""Which units an input never fired, told by the two ends of a training.

Gates move during a training, so a unit that is off at both ends may have fired in between. The pre-activation of a unit
moves in proportion to the change of its weights. If it moved like a Brownian bridge between its two ends ``m0`` and
``m1``, both below zero, it crossed zero with probability ``exp(-2 m0 m1 / τ²)``, where ``τ`` grows with the change. So
units are ranked by ``m0 m1 / ‖Δw‖²``.

The state of an optimiser shows one end and no change of the weights. Adam moves every weight by about the learning
rate, whatever its gradient is, so that no unit moves much further than others, and the pre-activation alone ranks them.
From inputs that are off by a fifth of their distance to the mean, the 60 best units then give 40 of 40 rows of MNIST
after AdamW instead of 35, 8 of 40 of faces instead of none, and 50 of 50 after SGD with momentum instead of 38.
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
    is_off = (before < 0) & (after < 0) & problem.gated.bool()
    score = torch.log((before * after).clamp(min=1e-300))
    if not problem.is_local or problem.gates_are_exact:
        score = score - 2 * torch.log(problem.movement.clamp(min=1e-150))
    return score.masked_fill(~is_off, -torch.inf)
