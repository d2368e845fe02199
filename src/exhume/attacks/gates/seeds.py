"""Inputs to start a search from: the changes of single units, and random inputs around the mean of all.

A unit that one input alone fired has moved in the direction of this input. The less a unit moved, the fewer inputs
fired it.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.gates.halfspaces import fit_halfspaces
from exhume.attacks.gates.problem import RowProblem

SHARED_SILENCE = 0.05
"""Fraction of silent units from which inputs are taken to share a mean."""
START_DISTANCE = 3.0
"""Largest distance of a random input from that mean, in units of the mean."""


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
    """Draw inputs in the span of ``directions``, some along its main directions, some evenly.

    Many silent units mean that inputs share a mean (pixels left in [0, 1]). Starting points are then drawn around it,
    at several distances.
    """
    noise = torch.randn(count, directions.shape[1], generator=generator, dtype=torch.float64).to(directions.device)
    spread = torch.rand(count, 1, generator=generator, dtype=torch.float64).square()
    distance = START_DISTANCE * spread.to(directions.device)
    evenness = (torch.arange(count, device=directions.device) % 3)[:, None] / 2
    inputs = problem.orient((noise * strengths ** (1 - evenness)) @ directions.T)
    if float(problem.silent.mean()) < SHARED_SILENCE:
        return inputs
    mean = find_common_input(problem, directions)
    size = (inputs @ problem.gate_weights.T).norm(dim=1, keepdim=True) / (mean @ problem.gate_weights.T).norm()
    around: Tensor = mean + distance * inputs / size.clamp(min=1e-30)
    return around


def find_common_input(problem: RowProblem, directions: Float[Tensor, "value free"]) -> Float[Tensor, "1 value"]:
    """Find what the inputs in a span have in common: off on silent units, on elsewhere."""
    features, free = problem.gate_weights @ directions, directions.shape[1]
    features = features / features.pow(2).mean().sqrt() / free**0.5
    start = torch.zeros(1, free).to(features)
    codes = fit_halfspaces(features, problem.informative[None], start, 1.0, steps=8)
    return problem.orient(codes @ directions.T)
