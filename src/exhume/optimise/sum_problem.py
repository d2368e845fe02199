"""The problem that attacks by gradient sums share: a target, the sums that should explain it, and the inputs' range."""

from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.clues.search_space import SearchSpace
from exhume.gradient_sums.curvature import GradientField
from exhume.gradient_sums.interface import Duals, GradientSums, Sharpness, Sums, Targets
from exhume.gradient_sums.residuals import LowRank
from exhume.gradient_sums.sums import ChunkedSums
from exhume.optimise.box import Box

Coordinates = Float[Tensor, "*run candidate free"]
AnyProblem = TypeVar("AnyProblem", bound="SumProblem")


@dataclass(frozen=True, kw_only=True)
class SumProblem:
    """``‖target − Σ_j Σ_c α_jc ∇θ f_c(x_j; θ)‖²`` plus a penalty on inputs outside the box. Mathematics only, no loop.

    Variables may have a first dimension of runs; values then have one entry per run, independent of the other runs.
    """

    sums: GradientSums
    target: Sums
    """One per parameter; that of the first layer is in coordinates of the space if the sums take them."""
    space: SearchSpace
    box: Box | None
    box_weight: float
    """Weight of the sum of squared violations over the size of an input."""
    metric: Float[Tensor, "*run coordinate coordinate"] | None = None
    """The metric of the first layer's residual; see :func:`~exhume.gradient_sums.coordinates.balanced_metric`."""
    compact_target: Targets | None = None
    """The target with low-rank factors for matrices where that saves work; see :meth:`compacted`."""
    box_dtype: torch.dtype | None = None
    """Dtype in which the penalty of the box is computed; None: that of the variables."""
    gain: float = 1.0
    """Factor of duals and targets inside squared residuals, which are divided by it again: it keeps the values between
    them in the range of a short dtype."""
    at_once: int | None = None
    """Number of candidates per chunk; None: all at once. It changes the memory used, not the result."""

    def compacted(self: AnyProblem, candidates: int) -> AnyProblem:
        """Return the same problem, with its target in the form that is cheapest for so many candidates."""
        return replace(self, compact_target=self.sums.compact(self.target, candidates))

    def rounded(self: AnyProblem, dtype: torch.dtype, *, rows: bool = False) -> AnyProblem:
        """Return the same problem with the factors of matrix products rounded, where sums are in closed form.

        With ``rows`` everything between the products is rounded as well, and so is the penalty of the box.
        """
        return replace(self, sums=self.sums.rounded(dtype, rows=rows), box_dtype=dtype if rows else None)

    @property
    def size(self) -> float:
        """The squared norm of the target, which is the residual when nothing is explained."""
        return float(sum(change.double().square().sum() for change in self.target))

    def inputs(self, free: Coordinates) -> Float[Tensor, "*run candidate value"]:
        """Return flat network inputs."""
        return self.space.inputs(self.space.coordinates(free))

    def arguments(self, free: Coordinates) -> Tensor:
        """Return the arguments of the sums: coordinates where they take them, inputs elsewhere."""
        coordinates = self.space.coordinates(free)
        return coordinates if self.sums.takes_coordinates else self.space.inputs(coordinates)

    def to_free(self, to_arguments: Tensor) -> Coordinates:
        """Convert a gradient by the arguments of the sums into one by free coordinates."""
        to_coordinates = to_arguments if self.sums.takes_coordinates else self.space.pull(to_arguments)
        return self.space.release(to_coordinates)

    @property
    def chunked_sums(self) -> GradientSums:
        """The sums, in chunks of candidates where that was asked for."""
        return self.sums if self.at_once is None else ChunkedSums(self.sums, self.at_once)

    def squared_residual(
        self, free: Coordinates, duals: Duals, sharpness: Sharpness
    ) -> tuple[Float[Tensor, "*run"], Tensor, Duals]:
        """Return the squared residual with its gradients by the *arguments* of the sums and by duals."""
        target = self.target if self.compact_target is None or self.at_once is not None else self.compact_target
        arguments, gain = self.arguments(free), self.gain
        if gain == 1.0:
            return self.chunked_sums.squared_residual(target, arguments, duals, sharpness, self.metric)
        amplified = tuple(one.times(gain) if isinstance(one, LowRank) else gain * one for one in target)
        value, to_arguments, to_duals = self.chunked_sums.squared_residual(
            amplified, arguments, gain * duals, sharpness, self.metric
        )
        return value / gain**2, to_arguments / gain**2, to_duals / gain

    def residual_field(self, free: Coordinates, duals: Duals, sharpness: Sharpness) -> GradientField:
        """Return the gradient of ``⟨sums − target, s_j⟩`` by any coordinates of candidate ``j``, the residual constant.

        Its derivative is the curvature that decides whether to split a candidate (:mod:`exhume.optimise.splitting`).
        """
        predicted = self.chunked_sums(self.arguments(free), duals, sharpness)[0]
        residual = [one - other for one, other in zip(predicted, self.target, strict=True)]
        if self.metric is not None:
            residual[0] = residual[0] @ self.metric

        def gradient(at: Tensor) -> Tensor:
            return self.to_free(self.chunked_sums(self.arguments(at), duals, sharpness)[1](tuple(residual))[0])

        return gradient

    def box_penalty(self, free: Coordinates) -> tuple[Float[Tensor, "*run"], Coordinates] | None:
        """Return the penalty on inputs outside the box and its gradient; None where there is no box."""
        if self.box is None or self.box_weight == 0:
            return None
        weight = self.box_weight / self.space.size
        dtype = self.box_dtype or free.dtype
        space, box = self.space.to(dtype), self.box.to(dtype)
        penalties, pulled = [], []
        for part in torch.split(free, self.at_once or free.shape[-2], -2):
            inputs = space.inputs(space.coordinates(part.to(dtype)))
            square, violation = box.squared_violation(inputs)
            penalties.append(weight * square.to(free))
            pulled.append(2 * weight * space.release(space.pull(violation)).to(free))
        return torch.stack(penalties).sum(0), pulled[0] if len(pulled) == 1 else torch.cat(pulled, -2)
