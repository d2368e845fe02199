"""Read out inputs: from all rows together, or fitted to the zeros of one row where rows are missing."""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.gates.halfspaces import fit_halfspaces
from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.zeros import find_zeros, off_probability, zero_width
from exhume.clues.subspace import split_off


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
) -> Float[Tensor, "row value"]:
    """Fit to the zeros of each row an input in the span of ``directions``, added to ``base`` where that is known."""
    features = problem.gate_weights @ directions
    free = directions.shape[1]
    size = features.pow(2).mean().sqrt() * free**0.5
    features = features / size
    on = (1 - off_probability(problem.normalise(rows), 0.5, zero_width(problem, rows))) * problem.informative
    start = torch.zeros(len(rows), problem.basis.shape[0]).to(features) if base is None else base
    known = start @ problem.gate_weights.T
    unit = known.pow(2).mean(dim=1, keepdim=True).sqrt().clamp(min=1e-6)
    codes = torch.zeros(len(rows), free).to(features)
    # Few free directions are determined by many units and need little regularisation.
    ridges = (1.0, 0.3, 0.1, 0.03) if 20 * free > problem.units else (1.0, 0.1, 1e-2, 1e-3)
    # The known part may be far off where rows are missing, so it is trusted little at first.
    steepness = (20.0,) * 4 if base is None else (2.0, 5.0, 10.0, 20.0)
    scale = steepness[0] / unit
    for ridge, steep in zip(ridges, steepness, strict=True):
        codes, scale = codes * (steep / unit) / scale, steep / unit
        codes = fit_halfspaces(features, on, codes, ridge, steps=3, base=known * scale)
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
