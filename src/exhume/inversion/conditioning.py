"""How well features determine the input that has them: the Jacobian of a trunk at a solution.

A pixel reaches only the features near it, so the Jacobian is sparse. Pixels whose features do not overlap are probed in
one product, and ``JᵀJ`` follows from a sparse product.
"""

import contextlib
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.sparse
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhume.inversion.feature_span import FeatureSpan
from exhume.inversion.gauss_newton import InputBox, Trunk

PROBES_AT_ONCE = 64
"""Inputs that pass through the trunk at once."""


@dataclass(frozen=True)
class Footprints:
    """Which features each input value reaches, and groups of values that reach none in common."""

    values: Int[Tensor, " pair"]
    """The input value of each pair of a value and a feature that it reaches, in ascending order."""
    features: Int[Tensor, " pair"]
    """The feature of each pair."""
    groups: Int[Tensor, " value"]
    """The group of each value."""
    feature_count: int

    @property
    def count(self) -> int:
        """The number of groups."""
        return int(self.groups.max()) + 1

    def locate(
        self, inputs: Float[Tensor, "example ..."], residuals: Float[Tensor, "example feature"]
    ) -> Float[Tensor, "example ..."]:
        """Return for each input value the sum of the squared residuals of the features that it reaches."""
        values, features = self.values.to(residuals.device), self.features.to(residuals.device)
        total = torch.zeros_like(inputs).flatten(1)
        return total.index_add_(1, values, residuals.square()[:, features]).reshape(inputs.shape)


def find_footprints(trunk: Trunk, shape: tuple[int, ...], like: Tensor) -> Footprints:
    """Find which features each input value reaches, by a NaN in its place: NaN times zero is NaN."""
    size = int(torch.Size(shape).numel())
    parts = []
    with torch.no_grad():
        for some in torch.split(torch.arange(size), PROBES_AT_ONCE):
            probes = torch.zeros(len(some), size).to(like)
            probes[torch.arange(len(some)), some] = torch.nan
            parts.append(trunk(probes.reshape(-1, *shape)).isnan().cpu())
    reached = torch.cat(parts)
    as_numbers = reached.float()
    values, features = reached.nonzero(as_tuple=True)
    return Footprints(values, features, _colour((as_numbers @ as_numbers.T) > 0), reached.shape[1])


def _colour(conflicts: Bool[Tensor, "value value"]) -> Int[Tensor, " value"]:
    """Give each value the smallest number that no conflicting value before it has."""
    numbers = np.full(len(conflicts), -1)
    for value, row in enumerate(conflicts.numpy()):
        taken = set(numbers[row].tolist())
        numbers[value] = next(number for number in range(len(conflicts)) if number not in taken)
    return torch.from_numpy(numbers)


def jacobian(trunk: Trunk, one: Float[Tensor, "..."], footprints: Footprints) -> scipy.sparse.csc_matrix:
    """Return the Jacobian of a trunk at one input, in float64."""
    size = one.numel()
    seeds = torch.zeros(footprints.count, size).to(one)
    seeds[footprints.groups.to(one.device), torch.arange(size, device=one.device)] = 1
    columns = []
    for some in torch.split(seeds, PROBES_AT_ONCE):
        points = one[None].repeat(len(some), *[1] * one.ndim)
        columns.append(torch.func.jvp(trunk, (points,), (some.reshape(len(some), *one.shape),))[1].cpu())
    probed = torch.cat(columns)
    entries = probed[footprints.groups[footprints.values], footprints.features].double().numpy()
    ends = np.concatenate([[0], np.bincount(footprints.values.numpy(), minlength=size).cumsum()])
    shape = (footprints.feature_count, size)
    return scipy.sparse.csc_matrix((entries, footprints.features.numpy(), ends), shape=shape)


NOISE_SHARE = 2.0
"""How much of the noise of a span is taken off what its noise leaves outside, in its expected squares."""


def normal_matrix(matrix: scipy.sparse.csc_matrix, span: FeatureSpan | None = None) -> np.ndarray:
    """Return ``JᵀJ``; with a span, that of the part of the Jacobian outside it, less what the noise of the span adds.

    A direction whose image lies in the true span seems to leave it by the noise alone. It must not count as determined,
    so the result need not be positive definite.
    """
    gram: np.ndarray = (matrix.T @ matrix).toarray()
    if span is not None:
        inside = matrix.T @ span.basis[: matrix.shape[0]].cpu().numpy()
        noise = NOISE_SHARE * matrix.shape[0] * (span.noise / span.strengths.cpu().numpy()) ** 2
        gram -= (inside * (1 + noise)) @ inside.T
    return gram


class DirectSteps:
    """Damped Gauss–Newton steps by a Cholesky decomposition of ``JᵀJ``, for inputs of some thousand values.

    With a span, only the part of the features outside it is to vanish, and the features asked for are not used.
    """

    def __init__(self, trunk: Trunk, footprints: Footprints, span: FeatureSpan | None = None) -> None:
        self.trunk, self.footprints, self.span = trunk, footprints, span

    def __call__(
        self,
        inputs: Float[Tensor, "example ..."],
        features: Float[Tensor, "example feature"],
        damping: Float[Tensor, " example"],
        box: InputBox,
    ) -> Float[Tensor, "example ..."]:
        """Return one step per example."""
        with torch.no_grad():
            values = self.trunk(inputs)
            residuals = values - features if self.span is None else self.span.outside(values)[:, : values.shape[1]]
        return torch.stack(
            [
                self._step(one, residual, float(scale), box)
                for one, residual, scale in zip(inputs, residuals.cpu().numpy(), damping, strict=True)
            ]
        )

    def _step(self, one: Tensor, residual: np.ndarray, damping: float, box: InputBox) -> Tensor:
        # In float32, which is cheaper: the trunk is linear nearby, so a step leaves 10⁻⁶ of the residual.
        matrix = jacobian(self.trunk, one.float(), self.footprints)
        gradient = matrix.T @ residual
        held = box.is_held(one[None], torch.from_numpy(gradient).to(one).reshape(one[None].shape))
        free = np.flatnonzero(~held.flatten().cpu().numpy())
        gram = normal_matrix(matrix, self.span)[np.ix_(free, free)]
        step = np.zeros_like(gradient)
        # The damping is relative to the largest entry, so that rounding does not make the matrix indefinite.
        size = max(float(np.diagonal(gram).max(initial=0.0)), np.finfo(float).tiny)
        gram[np.diag_indices_from(gram)] += max(damping, 1e-12) * size
        with contextlib.suppress(np.linalg.LinAlgError):  # not positive definite by rounding: the caller damps more
            step[free] = -scipy.linalg.cho_solve(scipy.linalg.cho_factor(gram, lower=True), gradient[free])
        return torch.from_numpy(step).to(one).reshape(one.shape)


@dataclass(frozen=True, kw_only=True)
class Conditioning:
    """What an error of the features does to the input."""

    equations: int
    """The number of features that depend on the input at this point."""
    free: int
    """The number of directions in which the input may move further than the precision allows."""
    spread: Float[Tensor, " value"]
    """Standard deviation of each input value over the inputs that have these features, within its range."""


def examine(
    matrix: scipy.sparse.csc_matrix,
    noise: float,
    width: Float[Tensor, " value"],
    precision: float,
    span: FeatureSpan | None = None,
) -> Conditioning:
    """Examine a Jacobian for features with independent errors of standard deviation ``noise``.

    Args:
        matrix: the Jacobian, one row per feature.
        noise: standard deviation of the error of a feature.
        width: the width of the range of each input value.
        precision: the largest acceptable standard deviation of a value, relative to its range.
        span: where features are known only to lie in this span; None: where all of them are known.
    """
    scale = width.double().numpy()
    gram = normal_matrix(matrix, span) * scale[:, None] * scale
    equations = int((abs(matrix).max(axis=1).toarray()[:, 0] > 0).sum())
    try:
        factor = scipy.linalg.cho_factor(gram, lower=True)
        inverse, failed = scipy.linalg.lapack.dpotri(factor[0], lower=True)
        spread = noise * np.sqrt(np.diagonal(inverse))
        if not failed and np.isfinite(spread).all() and spread.max() <= precision:
            return Conditioning(equations=equations, free=0, spread=torch.from_numpy(spread * scale))
    except np.linalg.LinAlgError:
        pass
    squares, directions = np.linalg.eigh(gram)
    strengths = np.sqrt(np.maximum(squares, np.finfo(float).eps * max(squares[-1], np.finfo(float).tiny)))
    lengths = np.minimum(noise / strengths, 0.5)  # half the range: beyond, the box decides
    spread = np.sqrt((directions**2) @ lengths**2)
    return Conditioning(
        equations=equations, free=int((lengths > precision).sum()), spread=torch.from_numpy(spread * scale)
    )
