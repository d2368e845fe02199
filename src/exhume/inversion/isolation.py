"""Inputs that are proven by the span of the features of all inputs alone.

The evidence shows the span of all features exactly, whatever was found in it. Combinations of features lie in the span
too, but no input has them: layers with kinks are not linear, so that between two inputs their features leave the span.
Hence an input whose features lie in the span, with far more equations than unknowns, and that cannot move without
leaving it, was trained on. How its features were found does not matter.

Two errors are bounded. Noise turns the span and moves the input along with it. And an input that is hidden in the noise
may have a part in the features; as the layers are not linear, the greater share of it stays visible outside the span.
"""

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.sparse
import torch
from jaxtyping import Float
from torch import Tensor

from exhume.core.progress import Tick, no_tick
from exhume.inversion.conditioning import DirectSteps, Footprints, examine, jacobian, normal_matrix
from exhume.inversion.feature_span import FeatureSpan
from exhume.inversion.gauss_newton import InputBox, Trunk, minimise_residuals
from exhume.inversion.rules import InversionRules


@dataclass(frozen=True, kw_only=True)
class Isolated:
    """An input whose features lie in the span."""

    inputs: Float[Tensor, "..."]
    error: float
    """Bound on the error of its values."""
    residual: float
    """The part of its features outside the span, relative to their size."""


def isolate(
    trunk: Trunk,
    span: FeatureSpan,
    one: Float[Tensor, "..."],
    others: Float[Tensor, "other feature"],
    box: InputBox,
    footprints: Footprints,
    rules: InversionRules,
    tick: Tick = no_tick,
) -> Isolated | None:
    """Move an input until its features lie in the span, and return it if it is proven.

    Args:
        trunk: from inputs to flat features, in float64.
        span: what the evidence shows.
        one: where to start.
        others: features of other inputs, right or wrong.
        box: the range of inputs, in float64.
        footprints: which features each input value reaches.
        rules: the thresholds.
        tick: called between steps; may raise to stop.
    """

    def outside(inputs: Tensor) -> Tensor:
        return span.outside(trunk(inputs))

    with torch.no_grad():
        size = float(trunk(one[None]).norm())
        if size == 0 or float(outside(one[None]).norm()) > rules.near * size:
            return None
    nothing = torch.zeros(1, len(span.basis)).to(one)
    steps = DirectSteps(trunk, footprints, span)
    found = minimise_residuals(
        outside, nothing, one[None], box, take_step=steps, steps=rules.search.polishing_steps, tick=tick
    )
    with torch.no_grad():
        features = trunk(found)
        left, size = float(span.outside(features).norm()), float(features.norm())
    if not left <= rules.reproduced * size:
        return None
    tick()
    width = torch.where((box.highest - box.lowest).isfinite(), box.highest - box.lowest, 1.0).double()
    # The same place for the same input: a generator of its own keeps the search apart from the proof.
    noise = torch.randn(found[0].shape, generator=torch.Generator().manual_seed(0)).to(found)
    matrix = jacobian(trunk, box.clamp(found + noise * width * rules.shift)[0], footprints)
    deviation = max(float(span.deviation(features)), rules.rounding * float(features.square().mean().sqrt()))
    # What is left beyond noise may point in any one direction, so all of it counts as one deviation.
    beyond = max(0.0, left - 1.5 * deviation * features.shape[1] ** 0.5) / rules.noise_tail
    known = examine(matrix, deviation + beyond, width.flatten().cpu(), rules.precision / rules.noise_tail, span)
    if known.free or known.equations < one.numel() + span.basis.shape[1] + rules.spare_equations:
        return None
    visible = _visible(matrix, features[0], others)
    hidden = rules.hidden * left / visible if visible > 0 else torch.inf
    error = rules.noise_tail * float((known.spread / width.flatten().cpu()).max()) + hidden
    if error > rules.precision:
        return None
    return Isolated(inputs=found[0], error=error * float(width.max()), residual=left / size)


def _visible(
    matrix: scipy.sparse.csc_matrix, features: Float[Tensor, " feature"], others: Float[Tensor, "other feature"]
) -> float:
    """Return how far outside the image of the Jacobian the features of the nearest other input lie; 0: there is none.

    It is the visible trace of an input that has a part in the features of another, at a part of one.
    """
    differences = (others.to(features) - features).cpu().numpy()
    lengths = np.linalg.norm(differences, axis=1)
    differences = differences[lengths > 0.05 * float(features.norm())]
    if len(differences) == 0:
        return 0.0
    gram = normal_matrix(matrix)
    gram[np.diag_indices_from(gram)] += 1e-12 * gram.diagonal().max()
    try:
        along = scipy.linalg.cho_solve(scipy.linalg.cho_factor(gram, lower=True), matrix.T @ differences.T)
    except np.linalg.LinAlgError:
        return 0.0
    return float(np.linalg.norm(differences.T - matrix @ along, axis=0).min())
