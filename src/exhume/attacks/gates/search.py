"""Search the row space of a layer's change for the rows of single training inputs.

With ReLU, the effect ``γ_i`` of input ``x_i`` is exactly zero on every unit that never fires on it: on about half of
all units, and the input itself determines on which (``w_k·x + b_k < 0``). A generic vector of the row space is zero
almost nowhere. So a row and its input are found together, by expectation and maximisation over the gates of the units:

- *row step*: given how likely each unit is off, find the row that is smallest on those units (re-weighted least
  squares, a few inverse iterations);
- *input step*: given the units on which the row is zero, find the input whose gates are off there (logistic regression
  on the known weights);
- *steering*: in early iterations, restart the row from the prediction of backpropagation for the current input at both
  ends of training, projected on the row space.

All candidates of a batch are searched at once.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.gates.halfspaces import ever_on, fit_halfspaces, weighted_gram
from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.zeros import off_probability

WIDTHS = (0.1, 0.003)
"""Size below which an entry counts as zero, falling from the first value to the second in the course of a search."""
SHARPNESS, FIRST_SHARPNESS = 16.0, 3.0
"""Factors on the margins of a candidate, in root mean squares, and of a starting point, which is trusted less."""
RIDGE = 0.3
"""Penalty on squared coordinates when an input is fitted to the zeros of a row."""

Tick = Callable[[], None]
"""Called between steps; may raise to stop the work."""


def no_tick() -> None:
    """Do nothing."""


def search_rows(
    problem: RowProblem,
    starts: Float[Tensor, "candidate value"],
    directions: Float[Tensor, "value free"],
    tick: Tick = no_tick,
) -> Float[Tensor, "candidate rank"]:
    """Search from ``starts`` for rows of single inputs that lie in the span of ``directions``.

    ``tick`` is called in every iteration.

    Returns:
        The rows as unit vectors in coordinates of the row space.
    """
    features = problem.gate_weights @ directions
    free = directions.shape[1]
    features = features / features.pow(2).mean().sqrt() / free**0.5
    codes = starts @ directions
    codes = codes / codes.norm(dim=1, keepdim=True).clamp(min=1e-30) * free**0.5
    margins = codes @ features.T
    on = ever_on(FIRST_SHARPNESS * margins / margins.pow(2).mean(dim=1, keepdim=True).sqrt())
    rows = predict_rows(problem, problem.orient(codes @ directions.T))
    iterations = problem.search.iterations
    for iteration in range(iterations):
        tick()
        progress = iteration / max(1, iterations - 1)
        width = WIDTHS[0] * (WIDTHS[1] / WIDTHS[0]) ** progress
        width_each = (3.0 * problem.noise_width(rows)).clamp(min=width)[:, None]
        if 0 < iteration <= problem.search.steered:
            rows = predict_rows(problem, problem.orient(codes @ directions.T))
        for _ in range(3):
            weights = (1 - on) * _off_weights(_entries(problem, rows), on, width_each)
            rows = minimise_weighted_norm(problem, rows, weights * problem.informative, 1)
        off = off_probability(_entries(problem, rows), 0.5, width_each)
        codes = fit_halfspaces(features, (1 - off) * problem.informative, codes, RIDGE)
        on = ever_on(SHARPNESS * (codes @ features.T))
    return rows


def minimise_weighted_norm(
    problem: RowProblem,
    rows: Float[Tensor, "candidate rank"],
    weights: Float[Tensor, "candidate unit"],
    iterations: int,
) -> Float[Tensor, "candidate rank"]:
    """Move rows towards the unit row with the smallest weighted sum of squares, by inverse iterations."""
    gram = weighted_gram(problem.directions, weights)
    scale = gram.diagonal(dim1=1, dim2=2).mean(dim=1)[:, None, None].clamp(min=1e-30)
    gram = gram / scale + 1e-11 * torch.eye(problem.rank, dtype=gram.dtype, device=gram.device)
    factor = torch.linalg.cholesky_ex(gram).L
    for _ in range(iterations):
        new = torch.cholesky_solve(rows[..., None], factor)[..., 0]
        new = new / new.norm(dim=1, keepdim=True)
        rows = torch.where(new.isfinite().all(dim=1, keepdim=True), new, rows)  # a singular matrix changes nothing
    return rows


def predict_rows(problem: RowProblem, inputs: Float[Tensor, "candidate value"]) -> Float[Tensor, "candidate rank"]:
    """Predict the rows of inputs: the combination of backward signals that lies deepest in the row space.

    The row of a training input is close to a combination of the signals of all outputs at both ends of training. The
    best combination is the leading canonical direction between their span and the row space.
    """
    scaled = _scale_like_inputs(problem, inputs)
    both = (problem.before, problem.after)
    predictions = torch.cat(
        [signal(scaled @ weights.T) for signal, weights in zip(problem.signals, both, strict=True)], dim=1
    )
    predictions = predictions * problem.informative
    predictions = predictions / predictions.norm(dim=2, keepdim=True).clamp(min=1e-30)
    inside = predictions @ problem.rows.T
    gram = predictions @ predictions.mT
    ridge = 1e-6 * torch.eye(gram.shape[1], dtype=gram.dtype, device=gram.device)
    factor = torch.linalg.cholesky_ex(gram + ridge).L
    whitened = torch.linalg.solve_triangular(factor, inside, upper=False)
    leading = torch.linalg.eigh(whitened @ whitened.mT).eigenvectors[:, :, -1:]
    rows: Tensor = (leading.mT @ whitened)[:, 0]
    size: Tensor = rows.norm(dim=1, keepdim=True)
    return rows / size.clamp(min=1e-30)


def _scale_like_inputs(problem: RowProblem, inputs: Tensor) -> Tensor:
    """Scale candidates to a constant of 1 (or, without a bias, to unit mean square): the scale of real inputs."""
    if problem.has_bias:
        floor = 0.02 * inputs.norm(dim=1, keepdim=True)
        return inputs / inputs[:, -1:].clamp(min=1e-30).maximum(floor)
    return inputs / inputs.pow(2).mean(dim=1, keepdim=True).sqrt().clamp(min=1e-30)


def _entries(problem: RowProblem, rows: Tensor) -> Tensor:
    """Return rows on all units, each unit scaled to norm one, with a root mean square of 1."""
    entries = rows @ problem.directions
    size: Tensor = entries.norm(dim=1, keepdim=True)
    return entries * (math.sqrt(problem.units) / size.clamp(min=1e-300))


def _off_weights(normalised: Tensor, on: Tensor, width: Tensor) -> Tensor:
    """Convert off-probabilities into least-squares weights that act like absolute values."""
    return off_probability(normalised, on, width) / (normalised.abs() + 0.1 * width)
