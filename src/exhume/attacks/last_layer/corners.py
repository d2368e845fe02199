"""Features as corners: the extreme points among all non-negative vectors of a row space.

Features after a ReLU are non-negative and often zero. Where every example has a value at which all others are zero, the
features are the only extreme points of the non-negative vectors ``aR`` with constant 1 (as in separable non-negative
matrix factorisation), whatever the loss.
"""

import numpy as np
import scipy.optimize
import torch
from jaxtyping import Float
from torch import Tensor


def find_corners(
    rows: Float[Tensor, "rank value"], constant: Float[Tensor, " rank"], generator: torch.Generator
) -> Float[Tensor, "corner rank"]:
    """Find extreme points of ``{a : aR ≥ 0, constant·a = 1}``, linearly independent, by one or two programs for each.

    An objective that is zero on all points found so far is extreme at another one. Fewer than ``rank`` are returned
    where a program has no bounded solution.
    """
    rank = len(rows)
    found = rows.new_zeros(0, rank)
    while len(found) < rank:
        objective = torch.randn(rank, generator=generator, dtype=torch.float64).to(rows)
        objective = objective - torch.linalg.pinv(found) @ (found @ objective)
        objective = objective / objective.norm()
        ends = [_lowest(rows, constant, sign * objective) for sign in (1, -1)]
        reached = [one for one in ends if one is not None]
        if not reached:
            break
        best = max(reached, key=lambda one: abs(float(objective @ one)) / float(one.norm()))
        if abs(float(objective @ best)) < 1e-9 * float(best.norm()):
            break
        found = torch.cat([found, best[None]])
    return found


def _lowest(
    rows: Float[Tensor, "rank value"], constant: Float[Tensor, " rank"], objective: Float[Tensor, " rank"]
) -> Float[Tensor, " rank"] | None:
    """Return where an objective is lowest; None where it has no lowest value."""
    solved = scipy.optimize.linprog(
        objective.cpu().numpy(),
        A_ub=-rows.T.cpu().numpy(),
        b_ub=np.zeros(rows.shape[1]),
        A_eq=constant[None].cpu().numpy(),
        b_eq=[1.0],
        bounds=(None, None),
    )
    return torch.from_numpy(solved.x).to(rows) if solved.status == 0 else None
