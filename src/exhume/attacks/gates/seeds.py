"""Inputs to start a search from: the changes of single units, and random inputs.

A unit that one input alone fired has moved in the direction of this input. The less a unit moved, the fewer inputs
fired it.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.gates.problem import RowProblem


def column_seeds(
    problem: RowProblem, known: Float[Tensor, "row rank"] | None = None
) -> Float[Tensor, "informative rank"]:
    """Return the change of each informative unit as an input, in coordinates of the basis, the smallest first.

    The part that ``known`` rows span is subtracted, so that only missing inputs are left, mainly those that fired the
    unit: known rows span little of any other row. Without a bias the sign of an input is unknown, so both signs are
    returned.
    """
    units = problem.informative.nonzero()[:, 0]
    units = units[problem.movement[units].argsort()]
    rows = problem.rows
    if known is not None and len(known):
        span = torch.linalg.qr(known.T).Q
        rows = rows - span @ (span.T @ rows)
    codes = (problem.strengths[:, None] * rows[:, units]).T
    if problem.has_bias:
        return torch.where(codes @ problem.basis[-1][:, None] < 0, -codes, codes)
    return torch.stack([codes, -codes], dim=1).flatten(0, 1)


def draw_starts(
    problem: RowProblem,
    directions: Float[Tensor, "value free"],
    strengths: Float[Tensor, " free"],
    count: int,
    generator: torch.Generator,
) -> Float[Tensor, "candidate value"]:
    """Draw inputs in the span of ``directions``, some along its main directions, some evenly."""
    noise = torch.randn(count, directions.shape[1], generator=generator, dtype=torch.float64).to(directions.device)
    evenness = (torch.arange(count, device=directions.device) % 3)[:, None] / 2
    return problem.orient((noise * strengths ** (1 - evenness)) @ directions.T)
