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

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.gates.halfspaces import ever_on, fit_halfspaces
from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.rows import minimise_weighted_norm
from exhume.attacks.gates.rules import Strategy
from exhume.attacks.gates.zeros import off_probability

Tick = Callable[[], None]
"""Called between steps; may raise to stop the work."""


def no_tick() -> None:
    """Do nothing."""


def search_rows(
    problem: RowProblem,
    starts: Float[Tensor, "candidate value"],
    directions: Float[Tensor, "value free"],
    strategy: Strategy,
    tick: Tick = no_tick,
) -> tuple[Float[Tensor, "candidate rank"], Float[Tensor, "candidate value"]]:
    """Search from ``starts`` for rows of single inputs that lie in the span of ``directions``.

    ``tick`` is called in every iteration.

    Returns:
        The rows as unit vectors in coordinates of the row space, and the inputs whose gates they show.
    """
    features = problem.gate_weights @ directions
    free = directions.shape[1]
    features = features / features.pow(2).mean().sqrt() / free**0.5
    codes = starts @ directions
    codes = codes / codes.norm(dim=1, keepdim=True).clamp(min=1e-30) * free**0.5
    margins = codes @ features.T
    on = ever_on(strategy.first_sharpness * margins / margins.pow(2).mean(dim=1, keepdim=True).sqrt())
    rows = predict_rows(problem, problem.orient(codes @ directions.T))
    for iteration in range(strategy.iterations):
        tick()
        progress = iteration / max(1, strategy.iterations - 1)
        width = strategy.widths[0] * (strategy.widths[1] / strategy.widths[0]) ** progress
        width_each = (3.0 * problem.noise_width(rows)).clamp(min=width)[:, None]
        if 0 < iteration <= strategy.steered:
            rows = predict_rows(problem, problem.orient(codes @ directions.T))
        inverse = strategy.first_inverse_iterations if iteration == 0 else strategy.inverse_iterations
        for step in range(strategy.row_steps):
            by_gates_alone = iteration == 0 and step == 0
            weights = (1 - on) if by_gates_alone else _off_weights(problem.normalise(rows), on, width_each)
            rows = minimise_weighted_norm(problem, rows, weights * problem.informative, inverse)
        off = off_probability(problem.normalise(rows), 0.5, width_each)
        codes = fit_halfspaces(features, (1 - off) * problem.informative, codes, strategy.ridge)
        on = ever_on(strategy.sharpness * (codes @ features.T))
    return rows, codes @ directions.T


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
    factor = torch.linalg.cholesky(gram + ridge)
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


def _off_weights(normalised: Tensor, on: Tensor, width: Tensor) -> Tensor:
    """Convert off-probabilities into least-squares weights that act like absolute values."""
    return off_probability(normalised, on, width) / (normalised.abs() + 0.1 * width)
