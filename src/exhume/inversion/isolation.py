"""Inputs that the span of the features of all inputs singles out, whatever their own features.

The evidence shows the span of all features exactly, even where single rows are in doubt. Combinations of features lie
in the span too, but as a rule no input has them: between two inputs, layers with kinks leave it. So an input whose
features lie in the span, with far more equations than unknowns, and that cannot move without leaving the span, is a
training input, under conditions that are checked here and where the proof is used:

- The layer has a bias, and the layers below compute what they computed in training. Otherwise features of any scale lie
  in the span, or those of other inputs.
- Features are independent in more directions than there are unknowns (:func:`has_spare_features`).
- The input is not composed of parts of others that no feature sees together. Its features would be sums and differences
  of theirs (:func:`share_parts`).

Two errors are bounded. Noise perturbs the span and moves the input with it. And an input that is hidden in the noise
may have a part in the features, a good deal of which stays visible outside the span.
"""

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.sparse
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.core.progress import Tick, no_tick
from exhume.inversion.conditioning import (
    PROBES_AT_ONCE,
    DirectSteps,
    Footprints,
    examine,
    jacobian,
    normal_matrix,
)
from exhume.inversion.feature_span import FeatureSpan
from exhume.inversion.gauss_newton import InputBox, Trunk, minimise_residuals
from exhume.inversion.rules import InversionRules

UNEXPLAINED = 1.5
"""Norm of a residual, relative to that of noise, up to which noise explains it."""

INDEPENDENT = 1e-6
"""Least singular value of independent features, relative to the largest; rounding leaves 1e-8 in their squares."""


@dataclass(frozen=True, kw_only=True)
class Isolated:
    """An input whose features lie in the span, and no input near it whose features do."""

    inputs: Float[Tensor, "..."]
    error: float
    """Bound on the error of its values."""
    residual: float
    """The part of its features outside the span, relative to their size."""
    spread: Float[Tensor, " value"]
    """Standard deviation of each value."""


def isolate(
    trunk: Trunk,
    span: FeatureSpan,
    start: Float[Tensor, "..."],
    others: Float[Tensor, "other ..."],
    box: InputBox,
    footprints: Footprints,
    rules: InversionRules,
    tick: Tick = no_tick,
) -> Isolated | None:
    """Move an input until its features lie in the span, and return it if it is isolated within the precision.

    Args:
        trunk: from inputs to flat features, in float64.
        span: what the evidence shows.
        start: where to start.
        others: other inputs, some of them right; inputs near ``start`` among them do not count.
        box: the range of inputs, in float64; nothing is proven where it is unbounded.
        footprints: which features each input value reaches.
        rules: the thresholds.
        tick: called between steps; may raise to stop.
    """

    def project_out(inputs: Tensor) -> Tensor:
        return span.outside(trunk(inputs))

    if not bool((box.highest - box.lowest).isfinite().all()):
        return None
    with torch.no_grad():
        size = float(trunk(start[None]).norm())
        if size == 0 or not float(project_out(start[None]).norm()) <= rules.near * size:
            return None
    target = torch.zeros(1, len(span.basis)).to(start)
    steps, most = DirectSteps(trunk, footprints, span), rules.search.polishing_steps
    found = minimise_residuals(project_out, target, start[None], box, take_step=steps, steps=most, tick=tick)
    with torch.no_grad():
        features = trunk(found)
        residual, size = float(span.outside(features).norm()), float(features.norm())
    if not residual <= rules.reproduced * size:
        return None
    tick()
    width = box.width.flatten().cpu()
    # The same place for the same input: a generator of its own keeps the search apart from the proof.
    shift = torch.randn(found[0].shape, generator=torch.Generator().manual_seed(0)).to(found) * box.width * rules.shift
    matrix = jacobian(trunk, box.clamp(found + shift)[0], footprints)
    if not np.isfinite(matrix.data).all():
        return None
    noise = max(float(span.deviation(features)), rules.rounding * float(features.square().mean().sqrt()))
    # What is left beyond noise may point in any one direction, so all of it counts as one deviation.
    unexplained = max(0.0, residual - UNEXPLAINED * noise * features.shape[1] ** 0.5) / rules.noise_tail
    conditioning = examine(matrix, noise + unexplained, width, rules.precision / rules.noise_tail, span)
    unknowns = start.numel() + span.basis.shape[1]
    if conditioning.free or conditioning.equations < unknowns + rules.spare_equations:
        return None
    tick()
    hidden = rules.hidden * residual * _largest_effect(trunk, matrix, found[0], others, box, rules.precision)
    error = rules.noise_tail * float((conditioning.spread / width).max()) + hidden
    if not error <= rules.precision:
        return None
    return Isolated(
        inputs=found[0],
        error=error * float(width.max()),
        residual=residual / size,
        spread=conditioning.spread,
    )


def _largest_effect(
    trunk: Trunk,
    matrix: scipy.sparse.csc_matrix,
    found: Float[Tensor, "..."],
    others: Float[Tensor, "other ..."],
    box: InputBox,
    precision: float,
) -> float:
    """Return how much an input moves, relative to its range, per visible trace of another input in its features.

    The trace of another input is the part of its features, less those of the input, outside the image of the Jacobian.
    It is infinite where there is no other input.
    """
    moves = ((others - found) / box.width).flatten(1).abs().amax(dim=1)
    is_other = moves > precision
    if not bool(is_other.any()):
        return torch.inf
    with torch.no_grad():
        differences = (trunk(others[is_other]) - trunk(found[None])).cpu().numpy().T
    gram = normal_matrix(matrix)
    gram[np.diag_indices_from(gram)] += 1e-12 * gram.diagonal().max()
    try:
        along = scipy.linalg.cho_solve(scipy.linalg.cho_factor(gram, lower=True), matrix.T @ differences)
    except np.linalg.LinAlgError:
        return torch.inf
    traces = np.linalg.norm(differences - matrix @ along, axis=0)
    with np.errstate(divide="ignore"):
        return float((moves[is_other].cpu().numpy() / traces).max())


def has_spare_features(trunk: Trunk, box: InputBox, rank: int, rules: InversionRules, tick: Tick = no_tick) -> bool:
    """Return whether features are linearly independent in more directions than an input and the span have unknowns.

    Copies of features, or linear layers that widen them, add equations that say nothing new.
    """
    count = box.lowest.numel() + rank + rules.spare_equations
    uniform = torch.rand(count, *box.lowest.shape, generator=torch.Generator().manual_seed(0)).double()
    parts = []
    for some in torch.split(uniform.to(box.lowest.device), PROBES_AT_ONCE):
        tick()
        with torch.no_grad():
            parts.append(trunk(box.lowest + box.width * some))
    features = torch.cat(parts)
    squares = torch.linalg.eigvalsh(features @ features.T)
    return bool(squares[0] > INDEPENDENT**2 * squares[-1])


def share_parts(
    inputs: Float[Tensor, "input ..."], footprints: Footprints, box: InputBox, rules: InversionRules
) -> Bool[Tensor, " input"]:
    """Return which inputs may be composed of parts of others.

    Two inputs share a feature if they agree, up to the precision, on all values that reach it. Where a receptive field
    is flat, as a black background is, this says nothing. Inputs that agree everywhere count as one.
    """
    flat = (inputs / box.width).flatten(1).double().cpu()
    values, features = footprints.values.cpu(), footprints.features.cpu()
    seen = flat[:, values]
    index, shape = features.expand(len(flat), -1), (len(flat), footprints.feature_count)
    highest = torch.full(shape, -torch.inf).double().scatter_reduce(1, index, seen, "amax")
    lowest = torch.full(shape, torch.inf).double().scatter_reduce(1, index, seen, "amin")
    is_textured = highest - lowest > rules.textured
    shares = torch.zeros(len(flat), dtype=torch.bool)
    for place, one in enumerate(seen):
        differences = torch.zeros(shape).double().scatter_reduce(1, index, (seen - one).abs(), "amax")
        is_same = (differences <= rules.precision) & is_textured[place]
        is_same[(flat - flat[place]).abs().amax(dim=1) <= rules.precision] = False
        shares[place] = bool((is_same.sum(dim=1) > rules.shared * is_textured[place].sum()).any())
    return shares
