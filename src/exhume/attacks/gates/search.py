"""Search the row space of a layer's change for the rows of single training inputs.

With ReLU, the effect ``γ_i`` of input ``x_i`` is exactly zero on every unit that never fires on it: on about half of
all units, and on which ones the input itself says (``w_k·x + b_k < 0``). A generic vector of the row space vanishes
almost nowhere. So a row and its input are found together, by expectation and maximisation over the units' gates:

- *row step*: given how likely each unit is off, the row that is smallest on those units (re-weighted least squares, a
  few inverse iterations);
- *input step*: given which units the row calls off, the input whose halfspace pattern says the same (logistic
  regression on the known weights);
- *steering*: early on, the row is started anew from what backpropagation through the network at both ends of training
  predicts for the current input, projected on the row space.

All candidates of a batch are searched at once.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle, islice, product

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.clues.first_layer import Signals
from exhume.clues.subspace import InputSubspace

Tick = Callable[[], None]

SHARED_SILENCE = 0.05
"""The fraction of silent units from which on inputs are taken to share a mean."""


FIRST_WIDTHS, LAST_WIDTH = (0.3, 0.1, 0.03), 0.002
"""From and to which width entries count as zero when an input is taken at its word; what one misses another finds."""
AT_ONCE = 2**28
"""How many numbers a product of many matrices may hold on the way: two gigabytes."""
DEPTH_POWERS, DEEPEST = (0.0, 1.0), 2.0
"""How much more a unit says that is further from firing, as powers of its distance, and the distance, in units of the
mean, beyond which all are alike."""


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """How one batch is searched; the widths are in units of a row's root mean square."""

    iterations: int = 20
    steered: int = 10
    """How many of the iterations start the row anew from the network's prediction."""
    row_steps: int = 3
    inverse_iterations: int = 1
    first_inverse_iterations: int = 1
    widths: tuple[float, float] = (0.3, 0.01)
    """How close to zero an entry must be to count as off, falling from the first value to the second."""
    sharpness: float = 8.0
    """How firmly the gates of a candidate input are believed."""
    first_sharpness: float = 3.0
    """The same for a start, whose margins are scaled to unit size first."""
    ridge: float = 0.3


@dataclass(frozen=True, kw_only=True)
class RowProblem:
    """What the search needs to know: the row space on informative units, and the gates' weights in the subspace."""

    rows: Float[Tensor, "rank unit"]
    basis: Float[Tensor, "value rank"]
    strengths: Float[Tensor, " rank"]
    before: Float[Tensor, "unit value"]
    after: Float[Tensor, "unit value"]
    informative: Float[Tensor, " unit"]
    """1 for a unit that some input moved, 0 for one that says nothing."""
    noise: float
    has_bias: bool
    signals: tuple[Signals, ...]
    """From pre-activations to the backward signals at them, at each end of training."""

    @property
    def rank(self) -> int:
        """The dimension of the row space."""
        return len(self.rows)

    @property
    def units(self) -> int:
        """How many units are informative."""
        return int(self.informative.sum())

    @property
    def silent(self) -> Float[Tensor, " unit"]:
        """1 for a unit that no input moved: off on all of them, which tells of inputs and says nothing about rows."""
        return 1 - self.informative

    @property
    def weights(self) -> Float[Tensor, "gate value"]:
        """The weights of every unit at the start of training, then at its end: two gates a unit."""
        return torch.cat([self.before, self.after])

    def normalised(self, rows: Float[Tensor, "candidate rank"]) -> Float[Tensor, "candidate unit"]:
        """Return rows on all units, scaled to a root mean square of 1 over the informative ones."""
        full = rows @ self.rows
        size: Tensor = full.norm(dim=1, keepdim=True)
        return full * (math.sqrt(self.units) / size)

    def noise_width(self, rows: Float[Tensor, "candidate rank"]) -> Float[Tensor, " candidate"]:
        """Return the size that rounding noise gives to an entry of each normalised row that should be zero."""
        amplified: Tensor = (rows / self.strengths).norm(dim=1) / rows.norm(dim=1)
        return amplified * (self.noise * math.sqrt(self.units))


def row_problem(subspace: InputSubspace, signals: tuple[Signals, ...]) -> RowProblem:
    """Set up the search in a subspace."""
    layer = subspace.layer
    column = layer.change.norm(dim=0)
    heard = column > 6.0 * subspace.noise * layer.change.shape[0] ** 0.5
    rows = subspace.rows * heard
    return RowProblem(
        rows=rows,
        basis=subspace.basis,
        strengths=subspace.strengths,
        before=layer.before,
        after=layer.after,
        informative=heard.to(rows.dtype),
        noise=subspace.noise,
        has_bias=layer.has_bias,
        signals=signals,
    )


def random_starts(
    problem: RowProblem,
    directions: Float[Tensor, "value free"],
    strengths: Float[Tensor, " free"],
    count: int,
    generator: torch.Generator,
) -> Float[Tensor, "candidate value"]:
    """Draw candidate inputs inside the span of ``directions``, some along its main directions, some evenly.

    Where many units are silent, inputs share a mean (pixels left in [0, 1]) that the silence gives away; candidates are
    then drawn around it, at several distances.
    """
    noise = torch.randn(count, directions.shape[1], generator=generator, dtype=torch.float64).to(directions.device)
    distance = 3.0 * torch.rand(count, 1, generator=generator, dtype=torch.float64).square().to(directions.device)
    evenness = (torch.arange(count, device=directions.device) % 3)[:, None] / 2
    inputs = oriented(problem, (noise * strengths ** (1 - evenness)) @ directions.T)
    if float(problem.silent.mean()) < SHARED_SILENCE:
        return inputs
    mean = common_input(problem, directions)
    size = (inputs @ problem.weights.T).norm(dim=1, keepdim=True) / (mean @ problem.weights.T).norm()
    around: Tensor = mean + distance * inputs / size.clamp(min=1e-30)
    return around


def common_input(problem: RowProblem, directions: Float[Tensor, "value free"]) -> Float[Tensor, "1 value"]:
    """Return what the inputs in a span share: off on the units that no input moved, on elsewhere."""
    features, free = problem.weights @ directions, directions.shape[1]
    features = features / features.pow(2).mean().sqrt() / free**0.5
    start = torch.zeros(1, free).to(features)
    codes = fit_halfspaces(features, problem.informative[None], start, 1.0, steps=8)
    return oriented(problem, codes @ directions.T)


def oriented(problem: RowProblem, inputs: Float[Tensor, "candidate value"]) -> Float[Tensor, "candidate value"]:
    """Choose the sign that makes the constant last value positive, where the layer has a bias to tell."""
    if not problem.has_bias:
        return inputs
    return torch.where(inputs[:, -1:] < 0, -inputs, inputs)


def predicted_rows(problem: RowProblem, inputs: Float[Tensor, "candidate value"]) -> Float[Tensor, "candidate rank"]:
    """Predict the rows of inputs: the combination of backward signals that lies deepest in the row space.

    A training input's row is close to a combination of the signals at both ends of training and for each output; the
    best one is the leading canonical direction between their span and the row space.
    """
    scaled = _standardised(problem, inputs)
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


def _standardised(problem: RowProblem, inputs: Tensor) -> Tensor:
    """Scale candidates to a constant of 1 (or, without a bias, to unit mean square): the scale of real inputs."""
    if problem.has_bias:
        floor = 0.02 * inputs.norm(dim=1, keepdim=True)
        return inputs / inputs[:, -1:].clamp(min=1e-30).maximum(floor)
    return inputs / inputs.pow(2).mean(dim=1, keepdim=True).sqrt().clamp(min=1e-30)


def unheard() -> None:
    """Tell nobody."""


def search(
    problem: RowProblem,
    starts: Float[Tensor, "candidate value"],
    directions: Float[Tensor, "value free"],
    settings: SearchSettings,
    tick: Tick = unheard,
) -> tuple[Float[Tensor, "candidate rank"], Float[Tensor, "candidate value"]]:
    """Search from ``starts`` for rows of single inputs, the inputs confined to the span of ``directions``.

    ``tick`` is called every iteration; whoever wants to stop raises there.

    Returns:
        The rows as unit coordinates in the row space, and the inputs whose gates they show.
    """
    features = problem.weights @ directions
    free = directions.shape[1]
    features = features / features.pow(2).mean().sqrt() / free**0.5
    codes = starts @ directions
    codes = codes / codes.norm(dim=1, keepdim=True).clamp(min=1e-30) * free**0.5
    margins = codes @ features.T
    on = ever_on(settings.first_sharpness * margins / margins.pow(2).mean(dim=1, keepdim=True).sqrt())
    rows = predicted_rows(problem, oriented(problem, codes @ directions.T))
    for iteration in range(settings.iterations):
        tick()
        progress = iteration / max(1, settings.iterations - 1)
        width = settings.widths[0] * (settings.widths[1] / settings.widths[0]) ** progress
        width_each = (3.0 * problem.noise_width(rows)).clamp(min=width)[:, None]
        if 0 < iteration <= settings.steered:
            rows = predicted_rows(problem, oriented(problem, codes @ directions.T))
        inverse = settings.first_inverse_iterations if iteration == 0 else settings.inverse_iterations
        for step in range(settings.row_steps):
            by_gates_alone = iteration == 0 and step == 0
            weights = (1 - on) if by_gates_alone else _off_weights(problem.normalised(rows), on, width_each)
            rows = smallest_on(problem, rows, weights * problem.informative, inverse)
        off = off_probability(problem.normalised(rows), 0.5, width_each)
        codes = fit_halfspaces(features, (1 - off) * problem.informative, codes, settings.ridge)
        on = ever_on(settings.sharpness * (codes @ features.T))
    return rows, codes @ directions.T


def off_probability(
    normalised: Float[Tensor, "candidate unit"], on: Float[Tensor, "candidate unit"] | float, width: Tensor
) -> Float[Tensor, "candidate unit"]:
    """Return how likely each unit is off: a narrow Laplace density of entries for off units, a wide one for on."""
    size = normalised.abs()
    typical = size.mean(dim=1, keepdim=True) / 0.55
    narrow = (1 - on) * torch.exp(-size / width) / width
    wide = on * torch.exp(-size / typical) / typical
    return narrow / (narrow + wide + 1e-30)


def _off_weights(normalised: Tensor, on: Tensor, width: Tensor) -> Tensor:
    """Turn off-probabilities into least-squares weights that act like absolute values."""
    return off_probability(normalised, on, width) / (normalised.abs() + 0.1 * width)


def smallest_on(
    problem: RowProblem,
    rows: Float[Tensor, "candidate rank"],
    weights: Float[Tensor, "candidate unit"],
    iterations: int,
) -> Float[Tensor, "candidate rank"]:
    """Move rows towards the unit row whose weighted square sum is smallest, by inverse iterations."""
    gram = weighted_gram(problem.rows, weights)
    scale = gram.diagonal(dim1=1, dim2=2).mean(dim=1)[:, None, None].clamp(min=1e-30)
    gram = gram + 1e-11 * scale * torch.eye(problem.rank, dtype=gram.dtype, device=gram.device)
    factor = torch.linalg.cholesky(gram / scale)
    for _ in range(iterations):
        rows = torch.cholesky_solve(rows[..., None], factor)[..., 0]
        rows = rows / rows.norm(dim=1, keepdim=True)
    return rows


def rows_of(
    problem: RowProblem,
    inputs: Float[Tensor, "candidate value"],
    generator: torch.Generator,
    tries: int = 6,
    lowest: int = 8,
    steps: int = 16,
) -> Float[Tensor, "candidate_try rank"]:
    """Find rows for inputs that are taken at their word: zero on most units that the input leaves off at both ends.

    Units that fired in the middle of training are outliers, the rarer the further a unit is from firing at the ends;
    and many rows of similar inputs are small on the same units. So several tries a candidate start in the span of the
    ``lowest`` eigenvectors, and each is drawn to a row with many exact zeros, as by a count of non-zeros whose width
    falls from several values to nothing.
    """
    before, after = (inputs @ problem.weights.T).chunk(2, dim=1)
    margins = torch.maximum(before, after)
    depth = (margins.abs() / margins.abs().mean(dim=1, keepdim=True).clamp(min=1e-30)).clamp(max=DEEPEST)
    off = (margins < 0) * problem.informative
    on = problem.informative - off
    factor = torch.linalg.cholesky(weighted_gram(problem.rows, on + 1e-3 * problem.informative))
    low = torch.linalg.eigh(_congruent(factor, weighted_gram(problem.rows, off * depth))).eigenvectors
    low = torch.linalg.solve_triangular(factor.mT, low[:, :, : min(lowest, problem.rank)], upper=True)
    mix = torch.randn(len(inputs), tries, low.shape[2], generator=generator, dtype=torch.float64).to(low)
    rows: Tensor = (mix @ low.mT).reshape(-1, problem.rank)
    first, power = (
        torch.tensor(values, dtype=rows.dtype, device=rows.device).repeat(len(inputs), 1).reshape(-1, 1)
        for values in zip(*islice(cycle(product(FIRST_WIDTHS, DEPTH_POWERS)), tries), strict=True)
    )
    off = off.repeat_interleave(tries, dim=0) * depth.repeat_interleave(tries, dim=0) ** power
    large = weighted_gram(problem.rows, on).repeat_interleave(tries, dim=0)
    for step in range(steps):
        width = first * (LAST_WIDTH / first) ** (step / (steps - 1))
        small = weighted_gram(problem.rows, off / (problem.normalised(rows).pow(2) + width.pow(2)))
        factor = torch.linalg.cholesky(small + 1e-9 * large)
        for _ in range(2):
            rows = torch.cholesky_solve(large @ rows[..., None], factor)[..., 0]
            rows = rows / rows.norm(dim=1, keepdim=True)
    return rows


def weighted_gram(
    vectors: Float[Tensor, "rank unit"], weights: Float[Tensor, "candidate unit"]
) -> Float[Tensor, "candidate rank rank"]:
    """Return ``V diag(w) Vᵀ`` for each row of weights, a few at a time where there are many."""
    size = max(1, AT_ONCE // vectors.numel())
    parts = [weights[at : at + size, None, :] for at in range(0, max(len(weights), 1), size)]
    return torch.cat([(vectors * part) @ vectors.T for part in parts])


def _congruent(factor: Tensor, matrix: Tensor) -> Tensor:
    """Return ``F⁻¹ A F⁻ᵀ``."""
    half = torch.linalg.solve_triangular(factor, matrix, upper=False)
    whole: Tensor = torch.linalg.solve_triangular(factor, half.mT, upper=False)
    return whole


def ever_on(margins: Float[Tensor, "candidate gate"]) -> Float[Tensor, "candidate unit"]:
    """Return how likely each unit is on at either end of training; no gate is believed beyond all doubt."""
    before, after = torch.sigmoid(-margins).chunk(2, dim=1)
    return (1 - before * after).clamp(0.02, 0.98)


def fit_halfspaces(
    features: Float[Tensor, "gate free"],
    on: Float[Tensor, "candidate unit"],
    codes: Float[Tensor, "candidate free"],
    ridge: float,
    steps: int = 2,
    base: Float[Tensor, "candidate gate"] | float = 0.0,
) -> Float[Tensor, "candidate free"]:
    """Fit the input whose gates tell which units are ``on``: Newton steps of a logistic regression.

    A unit is off when it is off at both ends of training, and on when it is on at either; which end a unit that is on
    owes it to is weighed by what the input says so far.

    Args:
        features: the gates' weights in coordinates of the inputs; all units at the start, then all at the end.
        on: how likely each unit is on.
        codes: the inputs to improve.
        ridge: how strongly inputs are held near zero.
        steps: how many Newton steps.
        base: the part of the margins that is known already.
    """
    identity = torch.eye(features.shape[1], dtype=features.dtype, device=features.device)
    for _ in range(steps):
        margins = base + codes @ features.T
        probability = torch.sigmoid(margins)
        before, after = (1 - probability).chunk(2, dim=1)
        labels = probability * (on / (1 - before * after).clamp(min=1e-6)).repeat(1, 2)
        curvature = probability * (1 - probability) + 1e-4
        slope = probability - labels
        hessian = weighted_gram(features.T, curvature) + ridge * identity
        step = torch.linalg.solve(hessian, (slope @ features + ridge * codes)[..., None])[..., 0]
        longest = (step @ features.T).abs().amax(dim=1, keepdim=True).clamp(min=1e-30)
        codes = codes - step * (4.0 / longest).clamp(max=1.0)
    return codes
