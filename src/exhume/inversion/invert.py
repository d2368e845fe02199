"""Solve ``trunk(x) = h`` for many features at once, and say for each whether the input is determined."""

from dataclasses import dataclass
from enum import StrEnum

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.core.run_context import OutOfTime, RunContext
from exhume.inversion.conditioning import DirectSteps, examine, find_footprints, jacobian
from exhume.inversion.feature_span import FeatureSpan
from exhume.inversion.gauss_newton import InputBox, MatrixFreeSteps, Trunk
from exhume.inversion.isolation import has_spare_features, isolate, share_parts
from exhume.inversion.rules import InversionRules
from exhume.inversion.search import InverseSearch, locate_by_probes


class Preimage(StrEnum):
    """How the search for the input of one feature vector ended."""

    DETERMINED = "determined"
    """An input reproduces the features, and no other near it does."""
    SEVERAL = "several solutions"
    """An input reproduces the features, and so do others."""
    UNEXAMINED = "not examined"
    """An input reproduces the features; it has too many values to examine the Jacobian."""
    ISOLATED = "isolated"
    """An input has other features, which lie in the span of all features, and no input near it does."""
    NOT_REACHED = "not reached"
    """No input was found that reproduces the features."""


@dataclass(frozen=True, kw_only=True)
class Inversion:
    """Inputs that reproduce given features; one entry per feature vector in each field."""

    inputs: Float[Tensor, "example ..."]
    """In float64, inside the box."""
    outcomes: list[Preimage]
    residuals: Float[Tensor, " example"]
    """Relative residuals ``‖trunk(x) − h‖ / ‖h‖``; for isolated inputs that of the span."""
    errors: Float[Tensor, " example"]
    """Bound on the error of the values of each input; infinite where it is not determined."""
    free: list[int]
    """Number of directions in which an input may move without a visible change of its features; -1 where unknown."""
    spread: Float[Tensor, "example ..."]
    """Standard deviation of each value over the inputs that have the features; NaN where unknown."""
    is_isolated: Bool[Tensor, " example"]
    """Which inputs the span of all features singles out (:mod:`exhume.inversion.isolation`), and which are not composed
    of parts of others."""


def invert(
    trunk: Trunk,
    features: Float[Tensor, "example feature"],
    box: InputBox,
    context: RunContext,
    *,
    errors: Float[Tensor, " example"] | None = None,
    span: FeatureSpan | None = None,
    to_isolate: Bool[Tensor, " example"] | None = None,
    rules: InversionRules | None = None,
) -> Inversion:
    """Find the inputs that ``trunk`` maps to ``features``.

    Args:
        trunk: any function of network inputs in float32 and float64 that returns flat features.
        features: one row per input.
        box: the range of inputs, in the shape of one input.
        context: randomness, progress and deadline.
        errors: bound on the error of the values of each row of features; None: rounding alone.
        span: a span that contains the features of all inputs; None: unknown.
        to_isolate: for which rows a proof by this span is tried; None: for all.
        rules: the thresholds; None: the defaults.
    """
    rules = rules or InversionRules()
    wanted = features.double()
    count, size = len(wanted), wanted.norm(dim=1)
    bound = torch.zeros_like(size) if errors is None else errors.to(size)
    # Errors of independent features add up like their square root; the bound is several standard deviations of one.
    noise_norm = bound / rules.noise_tail * wanted.shape[1] ** 0.5
    tolerance = (2 * noise_norm / size.clamp(min=1e-30)).clamp(min=rules.reproduced)
    middle = torch.where(box.lowest.isfinite() & box.highest.isfinite(), (box.lowest + box.highest) / 2, 0.0)
    is_small = middle.numel() <= rules.largest_input
    footprints = find_footprints(trunk, tuple(middle.shape), wanted) if is_small and count else None
    search = InverseSearch(
        trunk=trunk,
        features=wanted.float(),
        box=box,
        tolerance=tolerance,
        generator=context.generator,
        rules=rules.search,
        take_step=MatrixFreeSteps(trunk, rules.iterations) if footprints is None else DirectSteps(trunk, footprints),
        locate=locate_by_probes(trunk) if footprints is None else footprints.locate,
        inputs=middle.double().expand(count, *middle.shape).clone(),
        residuals=torch.full((count,), torch.inf).to(wanted),
    )
    outcomes = [Preimage.NOT_REACHED] * count
    free, limits = [-1] * count, torch.full((count,), torch.inf).to(wanted)
    spread = torch.full_like(search.inputs, torch.nan)
    is_isolated = torch.zeros(count, dtype=torch.bool)
    to_do = torch.ones(count, dtype=torch.bool) if to_isolate is None else to_isolate.cpu().clone()

    def try_to_isolate(index: int) -> None:
        reached = search.inputs[search.residuals <= rules.near]
        if span is None or footprints is None or not bool(to_do[index]) or len(reached) < 2:
            return

        def tick() -> None:
            context.report("invert", int((~to_do).sum()), count, "proof")

        found = isolate(trunk, span, search.inputs[index], reached, box.double(), footprints, rules, tick)
        to_do[index] = False
        if found is not None:
            is_isolated[index], outcomes[index], free[index] = True, Preimage.ISOLATED, 0
            search.inputs[index], limits[index] = found.inputs, found.error
            search.residuals[index] = found.residual
            spread[index] = found.spread.to(spread).reshape(spread[index].shape)

    def examine_solved(solved: Tensor) -> None:
        """Examine each input as soon as it is found, so that a deadline costs only those that come later."""
        for index in solved.tolist():
            outcomes[index] = Preimage.UNEXAMINED
            if footprints is None:
                continue
            one = search.inputs[index]
            noise = _feature_noise(search, wanted, bound, index, rules)
            shift = torch.randn(one.shape, generator=search.generator).to(one) * box.width * rules.shift
            matrix = jacobian(trunk, box.double().clamp((one + shift)[None])[0], footprints)
            found = examine(matrix, noise, box.width.flatten().cpu(), rules.precision / rules.noise_tail)
            free[index], spread[index] = found.free, found.spread.to(one).reshape(one.shape)
            is_determined = found.free == 0 and found.equations >= one.numel() + rules.spare_equations
            outcomes[index] = Preimage.DETERMINED if is_determined else Preimage.SEVERAL
            if is_determined:
                limits[index] = rules.noise_tail * float(found.spread.max())
            try_to_isolate(index)

    try:
        search.run(context, examine_solved)
        for index in range(count):
            try_to_isolate(index)
    except OutOfTime as stop:  # what is not examined by now stays unproven
        if not stop.wraps_up:
            raise
    if span is not None and footprints is not None and bool(is_isolated.any()):
        is_isolated &= has_spare_features(trunk, box.double(), span.basis.shape[1], rules)
        solved = (search.residuals <= search.tolerance).nonzero()[:, 0]
        is_isolated[solved.cpu()] &= ~share_parts(search.inputs[solved], footprints, box, rules)
    return Inversion(
        inputs=search.inputs,
        outcomes=outcomes,
        residuals=search.residuals,
        errors=limits,
        free=free,
        spread=spread,
        is_isolated=is_isolated,
    )


def _feature_noise(search: InverseSearch, wanted: Tensor, bound: Tensor, index: int, rules: InversionRules) -> float:
    """Return the standard deviation of the error of a feature, from its bound or from rounding.

    What the residual leaves beyond such errors may point in any one direction, so all of it counts as one deviation.
    """
    rounding = rules.rounding * float(wanted[index].square().mean().sqrt())
    noise: float = max(float(bound[index]) / rules.noise_tail, rounding)
    left: float = float(search.residuals[index] * wanted[index].norm())
    explained: float = 1.5 * noise * wanted.shape[1] ** 0.5
    return noise + max(0.0, left - explained) / rules.noise_tail
