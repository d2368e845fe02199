"""Gradient sums Σ_j Σ_c α_jc ∇θ f_c(x_j; θ), and how they answer to their inputs and duals.

Attacks that explain weights by training examples compare such a sum with something the attacker can see. A sum comes
with its *pullback*, the map from a cotangent of the sum to gradients with respect to inputs and duals, so that a step
of an optimiser keeps no autograd graph: for dense stacks both are a handful of matrix products.

A sum may join several sets of weights, its *points*: Σ_p Σ_j Σ_c α_pjc ∇θ f_c(x_j; θ_p), the same inputs at each.

Dense stacks can do many *runs* at once, each with inputs and duals of its own and a sum of its own; they may share the
weights (restarts of one attack) or have their own (networks of one shape).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume.gradient_sums.dense import DenseSums, Pullback, Sharpness, Sums, Targets
from exhume.gradient_sums.residuals import LowRank
from exhume.gradient_sums.smooth_relu import GatedReLU, SmoothReLU, with_smooth_relus
from exhume.models.structure import dense_stack
from exhume.models.tangent import compute_outputs, split_weights
from exhume.records import AttackerView, Weights


@runtime_checkable
class GradientSums(Protocol):
    """The gradient sums of a network at one or more points."""

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters, in the order of the sums."""
        ...

    def __call__(
        self,
        inputs: Float[Tensor, "candidate value"],
        duals: Float[Tensor, "point candidate output"],
        sharpness: Sharpness = None,
    ) -> tuple[Sums, Pullback]:
        """Return one sum a parameter, and the pullback to flat ``inputs`` and to ``duals``."""
        ...

    def outputs(self, inputs: Float[Tensor, "candidate value"]) -> Float[Tensor, "point candidate output"]:
        """Return what the network says to ``inputs`` at every point, its ReLUs sharp."""
        ...


def gradient_sums(
    view: AttackerView, points: Sequence[Weights], dtype: torch.dtype, *, gates_only: bool = False
) -> GradientSums:
    """Return the gradient sums of the view's model at ``points``: in closed form for a dense stack.

    With ``gates_only`` a sharpness softens the gates of backpropagation and leaves the values of a ReLU as they are.
    """
    stack = dense_stack(view.model)
    if stack is not None and stack.input_size == view.input_size:
        return DenseSums.at(stack, points, dtype, gates_only=gates_only)
    return ModuleSums.at(view, points, dtype, GatedReLU if gates_only else SmoothReLU)


def squared_residual(
    sums: GradientSums,
    target: Targets,
    inputs: Float[Tensor, "*run candidate value"],
    duals: Float[Tensor, "point *run candidate output"],
    sharpness: Sharpness = None,
    metric: Float[Tensor, "... in in"] | None = None,
) -> tuple[Float[Tensor, "*run"], Float[Tensor, "*run candidate value"], Float[Tensor, "point *run candidate output"]]:
    """Return ``‖target − sums‖²`` with its gradients with respect to inputs and duals.

    With a symmetric ``metric`` the residual ``R`` of the first sum counts as ``⟨R, R·metric⟩``. Of many runs there is
    one value each, from targets that they share or have each.
    """
    if isinstance(sums, DenseSums):
        return sums.squared_residual(target, inputs, duals, sharpness, metric)
    if isinstance(sums, WeighedSums) and isinstance(sums.whole, DenseSums):
        return sums.whole.squared_residual(target, inputs, duals, sharpness, metric, sums.factors)
    predicted, pullback = sums(inputs, duals, sharpness)
    wanted = [one.written() if isinstance(one, LowRank) else one for one in target]
    residuals = [one - other for one, other in zip(predicted, wanted, strict=True)]
    weighted = residuals if metric is None else [residuals[0] @ metric, *residuals[1:]]
    runs = inputs.ndim - 2
    products = [(one * other).flatten(runs).sum(-1) for one, other in zip(residuals, weighted, strict=True)]
    to_inputs, to_duals = pullback(tuple(weighted))
    return torch.stack(products).sum(0), 2 * to_inputs, 2 * to_duals


@dataclass(frozen=True)
class ChunkedSums:
    """The same sums, a few candidates at a time: memory no longer grows with their number.

    Sums add up over chunks, and the pullback of a chunk needs the whole sum's cotangent and its own candidates alone.
    So value and gradients are those of all candidates at once, for doing the first half of the work twice.
    """

    whole: GradientSums
    size: int
    """Candidates at a time."""

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters, in the order of the sums."""
        return self.whole.names

    def outputs(self, inputs: Float[Tensor, "candidate value"]) -> Float[Tensor, "point candidate output"]:
        """Return what the network says to ``inputs`` at every point, its ReLUs sharp."""
        return torch.cat([self.whole.outputs(part) for part in torch.split(inputs, self.size)], 1)

    def __call__(
        self,
        inputs: Float[Tensor, "*run candidate value"],
        duals: Float[Tensor, "point *run candidate output"],
        sharpness: Sharpness = None,
    ) -> tuple[Sums, Pullback]:
        """Return one sum a parameter, and the pullback to flat ``inputs`` and to ``duals``."""
        chunks = list(zip(torch.split(inputs, self.size, -2), torch.split(duals, self.size, -2), strict=True))
        total: list[Tensor] = []
        for chunk in chunks:
            sums = self.whole(*chunk, sharpness)[0]
            total = [one.add_(other) for one, other in zip(total, sums, strict=True)] if total else list(sums)

        def pullback(cotangents: Sums) -> tuple[Tensor, Tensor]:
            pulled = [self.whole(*chunk, sharpness)[1](cotangents) for chunk in chunks]
            to_inputs, to_duals = zip(*pulled, strict=True)
            return torch.cat(to_inputs, -2), torch.cat(to_duals, -2)

        return tuple(total), pullback


@dataclass(frozen=True)
class WeighedSums:
    """The same sums, each times a factor, so that what is left of a parameter counts with its square."""

    whole: GradientSums
    factors: tuple[float, ...]
    """One a parameter."""

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters, in the order of the sums."""
        return self.whole.names

    def outputs(self, inputs: Float[Tensor, "candidate value"]) -> Float[Tensor, "point candidate output"]:
        """Return what the network says to ``inputs`` at every point, its ReLUs sharp."""
        return self.whole.outputs(inputs)

    def __call__(
        self,
        inputs: Float[Tensor, "candidate value"],
        duals: Float[Tensor, "point candidate output"],
        sharpness: Sharpness = None,
    ) -> tuple[Sums, Pullback]:
        """Return one sum a parameter, and the pullback to flat ``inputs`` and to ``duals``."""
        sums, pullback = self.whole(inputs, duals, sharpness)
        return self.weighed(sums), lambda cotangents: pullback(self.weighed(cotangents))

    def weighed(self, values: Sums) -> Sums:
        """Multiply what belongs to each parameter by its factor."""
        return tuple(factor * value for factor, value in zip(self.factors, values, strict=True))


@dataclass(frozen=True)
class ModuleSums:
    """Gradient sums of any module, through ``torch.func``: slower than :class:`DenseSums`, and general."""

    names: tuple[str, ...]
    models: tuple[nn.Module, ...]
    """One a point, each with its weights and its own buffers, and smooth ReLUs where they could be placed."""
    input_shape: tuple[int, ...]

    @classmethod
    def at(
        cls,
        view: AttackerView,
        points: Sequence[Weights],
        dtype: torch.dtype,
        stand_in: type[SmoothReLU] = SmoothReLU,
    ) -> "ModuleSums":
        """Build a model a point, with ``stand_in`` for its ReLUs."""
        models = tuple(with_smooth_relus(view.module(weights), stand_in).to(dtype) for weights in points)
        return cls(tuple(name for name, _ in models[0].named_parameters()), models, view.input_shape)

    def __call__(
        self,
        inputs: Float[Tensor, "candidate value"],
        duals: Float[Tensor, "point candidate output"],
        sharpness: Sharpness = None,
    ) -> tuple[Sums, Pullback]:
        """Return one sum a parameter, and the pullback to flat ``inputs`` and to ``duals``."""

        def sums(at: Tensor, weighted: Tensor) -> Sums:
            shaped = at.reshape(len(at), *self.input_shape)
            each = [
                _module_sum(model, shaped, dual, sharpness) for model, dual in zip(self.models, weighted, strict=True)
            ]
            return tuple(torch.stack([one[name] for one in each]).sum(0) for name in self.names)

        result, pullback = torch.func.vjp(sums, inputs, duals)[:2]
        return result, pullback

    def outputs(self, inputs: Float[Tensor, "candidate value"]) -> Float[Tensor, "point candidate output"]:
        """Return what the network says to ``inputs`` at every point, its ReLUs sharp."""
        shaped = inputs.reshape(len(inputs), *self.input_shape)
        return torch.stack([compute_outputs(model, dict(model.state_dict()), shaped) for model in self.models])


def _module_sum(model: nn.Module, inputs: Tensor, duals: Tensor, sharpness: Sharpness) -> dict[str, Tensor]:
    parameters, buffers = split_weights(model, dict(model.state_dict()))
    if sharpness is not None:
        buffers |= {name: sharpness for name in buffers if name.rpartition(".")[2] == "sharpness"}

    def weighted_output(moved: dict[str, Tensor]) -> Tensor:
        return (compute_outputs(model, {**moved, **buffers}, inputs) * duals).sum()

    gradients: dict[str, Tensor] = torch.func.grad(weighted_output)(parameters)
    return gradients
