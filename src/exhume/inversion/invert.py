"""Solve ``trunk(x) = h`` for many features at once, and say for each whether the input is determined."""

from dataclasses import dataclass
from enum import StrEnum

import torch
from jaxtyping import Float
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from exhume.core.run_context import RunContext
from exhume.core.settings import settings
from exhume.inversion.conditioning import DirectSteps, examine, find_footprints, jacobian
from exhume.inversion.gauss_newton import InputBox, MatrixFreeSteps, Trunk
from exhume.inversion.search import InverseSearch, SearchRules, locate_by_probes


class Preimage(StrEnum):
    """How the search for the input of one feature vector ended."""

    DETERMINED = "determined"
    """An input reproduces the features, and no other near it does."""
    SEVERAL = "several solutions"
    """An input reproduces the features, and so do others."""
    UNEXAMINED = "not examined"
    """An input reproduces the features; it has too many values to examine the Jacobian."""
    NOT_REACHED = "not reached"
    """No input was found that reproduces the features."""


@settings
class InversionRules:
    """When features are reproduced, and when they determine their input."""

    reproduced: PositiveFloat = 1e-4
    """Largest relative residual of an input that reproduces its features. Local minima leave 10⁻³ and more on the
    trunks measured, true inputs 10⁻⁷ (exact features) to 2·10⁻⁵ (features read off a float32 gradient)."""
    rounding: PositiveFloat = 2e-7
    """Standard deviation of the rounding of a feature in float32, relative to the root mean square of features."""
    noise_tail: PositiveFloat = 5.5
    """Largest deviation among the values of an input, in standard deviations."""
    precision: PositiveFloat = 0.02
    """Largest error of a value of a determined input, relative to its range; about five grey levels of 256."""
    spare_equations: NonNegativeInt = 16
    """Number of features that must agree beyond as many as the input has values. A wrong input meets each of them to
    one part in a thousand with a probability of about 10⁻³, so 16 of them by chance with 10⁻⁴⁸."""
    shift: PositiveFloat = 1e-5
    """Distance from the solution, relative to the range, at which the Jacobian is examined. Where max pooling has ties
    (a flat background), the solution itself shows the same branch in all windows."""
    iterations: PositiveInt = 120
    """Conjugate-gradient iterations per Gauss–Newton step, for inputs that are too large for a Gram matrix."""
    largest_input: PositiveInt = 8192
    """Number of values of an input up to which the Jacobian is examined: its Gram matrix takes half a gigabyte."""
    search: SearchRules = SearchRules()


@dataclass(frozen=True, kw_only=True)
class Inversion:
    """Inputs that reproduce given features; one entry per feature vector in each field."""

    inputs: Float[Tensor, "example ..."]
    """In float64, inside the box."""
    outcomes: list[Preimage]
    residuals: Float[Tensor, " example"]
    """Relative residuals ``‖trunk(x) − h‖ / ‖h‖``."""
    errors: Float[Tensor, " example"]
    """Bound on the error of the values of each input; infinite where it is not determined."""
    free: list[int]
    """Number of directions in which an input may move without a visible change of its features; -1 where unknown."""
    spread: Float[Tensor, "example ..."]
    """Standard deviation of each value over the inputs that have the features; NaN where unknown."""


def invert(
    trunk: Trunk,
    features: Float[Tensor, "example feature"],
    box: InputBox,
    context: RunContext,
    *,
    errors: Float[Tensor, " example"] | None = None,
    rules: InversionRules | None = None,
) -> Inversion:
    """Find the inputs that ``trunk`` maps to ``features``.

    Args:
        trunk: any function of network inputs in float32 and float64 that returns flat features.
        features: one row per input.
        box: the range of inputs, in the shape of one input.
        context: randomness, progress and deadline.
        errors: bound on the error of the values of each row of features; None: rounding alone.
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
    span = torch.where((box.highest - box.lowest).isfinite(), box.highest - box.lowest, 1.0).double()

    def examine_solved(solved: Tensor) -> None:
        """Examine each input as soon as it is found, so that a deadline costs only those that come later."""
        for index in solved.tolist():
            outcomes[index] = Preimage.UNEXAMINED
            if footprints is None:
                continue
            one = search.inputs[index]
            noise = _feature_noise(search, wanted, bound, index, rules)
            shift = torch.randn(one.shape, generator=search.generator).to(one) * span * rules.shift
            matrix = jacobian(trunk, _double(box).clamp((one + shift)[None])[0], footprints)
            found = examine(matrix, noise, span.flatten().cpu(), rules.precision / rules.noise_tail)
            free[index], spread[index] = found.free, found.spread.to(one).reshape(one.shape)
            is_determined = found.free == 0 and found.equations >= one.numel() + rules.spare_equations
            outcomes[index] = Preimage.DETERMINED if is_determined else Preimage.SEVERAL
            if is_determined:
                limits[index] = rules.noise_tail * float(found.spread.max())

    search.run(context, examine_solved)
    return Inversion(
        inputs=search.inputs, outcomes=outcomes, residuals=search.residuals, errors=limits, free=free, spread=spread
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


def _double(box: InputBox) -> InputBox:
    return InputBox(box.lowest.double(), box.highest.double())
