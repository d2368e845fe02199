"""Which units an input never fired, told by the two ends of a training.

Gates move during a training, so a unit that is off at both ends may have fired in between. The pre-activation of a unit
moves in proportion to the change of its weights. If it moved like a Brownian bridge between its two ends ``m0`` and
``m1``, both below zero, it crossed zero with probability ``exp(-2 m0 m1 / τ²)``, where ``τ`` grows with the change. So
units are ranked by ``m0 m1 / ‖Δw‖²``.

The same law tells whether a row can belong to its input: units that are almost certainly silent must be zero in it. The
sum of two rows, read as the row of the average of their inputs, is not zero on all of them.
"""

import torch
from jaxtyping import Float
from scipy.stats import poisson
from torch import Tensor

from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.zeros import classify_entries

ROUNDING = 1e-5
"""Least pre-activation whose sign float32 tells, relative to the sum of the sizes of its terms."""


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


def log_p_firing(
    problem: RowProblem, rows: Float[Tensor, "row rank"], inputs: Float[Tensor, "row value"]
) -> Float[Tensor, " row"]:
    """Return the log probability that as many silent units of each input fired as its row says.

    The silent units are the better half of those that are off by :func:`rank_silence`. How many of them fire in
    mid-training after all is judged by the other rows. In one gradient no unit that is off fired.
    """
    nonzero = classify_entries(problem, rows).nonzero
    before, after = inputs @ problem.before.T, inputs @ problem.after.T
    least = ROUNDING * (inputs.abs() @ torch.maximum(problem.before.abs(), problem.after.abs()).T)
    if problem.gates_are_exact:
        is_off = (before < -least) & (after < -least) & problem.informative.bool()
        return torch.where((nonzero & is_off).any(dim=1), -torch.inf, 0.0).double()
    silence = rank_silence(problem, inputs @ problem.basis)
    middle = silence.masked_fill(silence.isinf(), torch.nan).nanmedian(dim=1, keepdim=True).values
    is_silent = silence >= middle
    fired, count = (nonzero & is_silent).sum(dim=1), is_silent.sum(dim=1)
    usual = (fired / count.clamp(min=1)).median()
    expected = (1 + count * usual).double().cpu().numpy()
    return torch.as_tensor(poisson.logsf(fired.double().cpu().numpy() - 1, expected), dtype=torch.float64)
