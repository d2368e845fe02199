"""Read out inputs: from all rows together, or fitted to the zeros of one row where rows are missing."""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.gates.halfspaces import fit_halfspaces
from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.zeros import find_zeros
from exhume.clues.subspace import split_off
from exhume.core.progress import Tick, no_tick


def missing_directions(
    problem: RowProblem, rows: Float[Tensor, "row rank"]
) -> tuple[Float[Tensor, "value free"], Float[Tensor, " free"]]:
    """Return the directions that only inputs of missing rows span, with their strengths."""
    left, strengths, _ = split_off(problem.strengths, rows)
    return problem.basis @ left, strengths


def fit_inputs(
    problem: RowProblem,
    rows: Float[Tensor, "row rank"],
    directions: Float[Tensor, "value free"],
    base: Float[Tensor, "row value"] | None = None,
    tick: Tick = no_tick,
) -> Float[Tensor, "row value"]:
    """Fit to the zeros of each row an input in the span of ``directions``, added to ``base`` where that is known.

    ``tick`` is called between steps; it may raise to stop.
    """
    features = problem.gate_weights @ directions
    free = directions.shape[1]
    size = features.pow(2).mean().sqrt() * free**0.5
    features = features / size
    on = (~find_zeros(problem, rows)).to(features) * problem.informative
    start = torch.zeros(len(rows), problem.basis.shape[0]).to(features) if base is None else base
    known = start @ problem.gate_weights.T
    unit = known.pow(2).mean(dim=1, keepdim=True).sqrt().clamp(min=1e-6)
    codes = torch.zeros(len(rows), free).to(features)
    scale = torch.ones_like(unit)
    # The known part may be far off where rows are missing, so it is trusted little at first.
    for ridge, steep in ((1.0, 2.0), (0.1, 5.0), (1e-2, 10.0), (1e-3, 20.0)):
        codes, scale = codes * (steep / unit) / scale, steep / unit
        codes = fit_halfspaces(features, on, codes, ridge, steps=3, base=known * scale, tick=tick)
    return problem.orient(start + (codes / size / scale) @ directions.T)


def choose_sign(
    problem: RowProblem, rows: Float[Tensor, "row rank"], inputs: Float[Tensor, "row value"]
) -> Float[Tensor, "row value"]:
    """Choose the sign of inputs: by their constant, or without a bias so that they are off where their row is zero."""
    if problem.has_bias:
        return problem.orient(inputs)
    margins = (inputs @ problem.gate_weights.T) * find_zeros(problem, rows).repeat(1, 2)
    return torch.where(margins.sum(dim=1, keepdim=True) > 0, -inputs, inputs)


def divide_by_constant(problem: RowProblem, inputs: Float[Tensor, "row value"]) -> Float[Tensor, "row value"]:
    """Divide by the constant last value, which fixes sign and scale, where the layer has a bias."""
    if not problem.has_bias:
        return inputs
    last = inputs[:, -1:]
    tiny = torch.finfo(inputs.dtype).tiny
    return inputs / torch.where(last.abs() < tiny, torch.full_like(last, tiny), last)
