"""Choose how a view's gradient sums are computed, and wrap sums: in chunks of candidates, or weighted per parameter."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.gradient_sums.dense import DenseSums
from exhume.gradient_sums.interface import Duals, GradientSums, Inputs, Pullback, Sharpness, Sums, Targets, scale_each
from exhume.gradient_sums.module import ModuleSums
from exhume.gradient_sums.smooth_relu import GatedReLU, SmoothReLU
from exhume.models.structure import DenseStack, dense_stack
from exhume.records import AttackerView, Weights


def gradient_sums(
    view: AttackerView, points: Sequence[Weights], dtype: torch.dtype, *, gates_only: bool = False
) -> GradientSums:
    """Return the gradient sums of the view's model at ``points``: in closed form for a dense stack.

    With ``gates_only`` a sharpness smooths the gates of backpropagation only; the values of ReLUs stay exact.
    """
    stack = stack_of(view)
    if stack is not None:
        return DenseSums.at(stack, points, dtype, gates_only=gates_only)
    return ModuleSums.at(view, points, dtype, GatedReLU if gates_only else SmoothReLU)


def stack_of(view: AttackerView) -> DenseStack | None:
    """Return a view's model as a dense stack, whose sums have a closed form; None where it is no such stack."""
    stack = dense_stack(view.model)
    return stack if stack is not None and stack.input_size == view.input_size else None


@dataclass(frozen=True)
class _Wrapper(GradientSums):
    whole: GradientSums

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        """The parameters, in the order of the sums."""
        return self.whole.names

    @property
    def takes_coordinates(self) -> bool:
        """Whether the wrapped sums take coordinates of a subspace."""
        return self.whole.takes_coordinates

    def rounded(self, dtype: torch.dtype, *, rows: bool = False) -> GradientSums:
        """Return the same sums with the factors of matrix products rounded to ``dtype``, where that is possible."""
        return replace(self, whole=self.whole.rounded(dtype, rows=rows))

    def compact(self, target: Sums, candidates: int) -> Targets:
        """Return the target in the form in which :meth:`squared_residual` of so many candidates is cheapest."""
        return self.whole.compact(target, candidates)

    def outputs(self, inputs: Inputs) -> Duals:
        """Return the outputs of the network at every point, with exact ReLUs."""
        return self.whole.outputs(inputs)


@dataclass(frozen=True)
class ChunkedSums(_Wrapper):
    """The same sums, computed for a few candidates at a time, so that memory does not grow with their number.

    Sums add up over chunks, and the pullback of a chunk needs only the cotangent of the whole sum and its own
    candidates. Value and gradients are those of all candidates at once; the forward half of the work is done twice.
    """

    size: int
    """Number of candidates per chunk."""

    def outputs(self, inputs: Inputs) -> Duals:
        """Return the outputs of the network at every point, with exact ReLUs."""
        return torch.cat([self.whole.outputs(part) for part in torch.split(inputs, self.size, -2)], -2)

    def __call__(self, inputs: Inputs, duals: Duals, sharpness: Sharpness = None) -> tuple[Sums, Pullback]:
        """Return one sum per parameter, and the pullback to flat ``inputs`` and to ``duals``."""
        chunks = self._chunks(inputs, duals)
        total: list[Tensor] = []
        for chunk in chunks:
            sums = self.whole(*chunk, sharpness)[0]
            total = [one.add_(other) for one, other in zip(total, sums, strict=True)] if total else list(sums)

        def pullback(cotangents: Sums) -> tuple[Tensor, Tensor]:
            pulled = [self.whole(*chunk, sharpness)[1](cotangents) for chunk in chunks]
            to_inputs, to_duals = zip(*pulled, strict=True)
            return torch.cat(to_inputs, -2), torch.cat(to_duals, -2)

        return tuple(total), pullback

    def squared_norms(
        self,
        inputs: Float[Tensor, "candidate value"],
        duals: Float[Tensor, "point candidate output"],
        sharpness: Sharpness = None,
    ) -> Float[Tensor, " candidate"]:
        """Return the squared norm of each candidate's own contribution to the sums."""
        return torch.cat([self.whole.squared_norms(*chunk, sharpness) for chunk in self._chunks(inputs, duals)])

    def _chunks(self, inputs: Tensor, duals: Tensor) -> list[tuple[Tensor, Tensor]]:
        return list(zip(torch.split(inputs, self.size, -2), torch.split(duals, self.size, -2), strict=True))


@dataclass(frozen=True)
class WeightedSums(_Wrapper):
    """The same sums, each times a factor, so that the squared residual of a parameter counts with its square."""

    factors: tuple[float, ...]
    """One per parameter."""

    def __call__(self, inputs: Inputs, duals: Duals, sharpness: Sharpness = None) -> tuple[Sums, Pullback]:
        """Return one sum per parameter, and the pullback to flat ``inputs`` and to ``duals``."""
        sums, pullback = self.whole(inputs, duals, sharpness)
        return self.weight(sums), lambda cotangents: pullback(self.weight(cotangents))

    def weight(self, values: Sums) -> Sums:
        """Multiply the value of each parameter by its factor."""
        return scale_each(self.factors, values)

    def squared_residual(
        self,
        target: Targets,
        inputs: Inputs,
        duals: Duals,
        sharpness: Sharpness = None,
        metric: Float[Tensor, "... in in"] | None = None,
        factors: Sequence[float] | None = None,
    ) -> tuple[Float[Tensor, "*run"], Inputs, Duals]:
        """Return ``‖target − sums‖²`` with its gradients; parameters with factor zero cost nothing in closed form."""
        own = self.factors if factors is None else [a * b for a, b in zip(self.factors, factors, strict=True)]
        return self.whole.squared_residual(target, inputs, duals, sharpness, metric, own)
