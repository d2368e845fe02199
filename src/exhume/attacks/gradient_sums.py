"""Gradient sums Σ_j Σ_c α_jc ∇θ f_c(x_j; θ), and how they answer to their inputs and duals.

Attacks that explain weights by training examples compare such a sum with something the attacker can see. A sum comes
with its *pullback*, the map from a cotangent of the sum to gradients with respect to inputs and duals, so that a step
of an optimiser keeps no autograd graph: for dense stacks both are a handful of matrix products.

A sum may join several sets of weights, its *points*: Σ_p Σ_j Σ_c α_pjc ∇θ f_c(x_j; θ_p), the same inputs at each.

Dense stacks can do many *runs* at once, each with inputs and duals of its own and a sum of its own; they may share the
weights (restarts of one attack) or have their own (networks of one shape).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume.attacks.smooth_relu import GatedReLU, SmoothReLU, with_smooth_relus
from exhume.models.structure import DenseStack, dense_stack
from exhume.models.tangent import outputs_of, split_weights
from exhume.records import AttackerView, Weights

Sums = tuple[Tensor, ...]
Pullback = Callable[[Sums], tuple[Tensor, Tensor]]
Sharpness = Float[Tensor, ""] | None
"""The β of softplus(βz)/β, which stands in for a ReLU because it has a second derivative; None keeps the ReLU."""


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
        sums = DenseSums.at(stack, points, dtype)
        return replace(sums, curve=gated_curve) if gates_only and stack.activation == "relu" else sums
    return ModuleSums.at(view, points, dtype, GatedReLU if gates_only else SmoothReLU)


def squared_residual(
    sums: GradientSums,
    target: Sums,
    inputs: Float[Tensor, "*run candidate value"],
    duals: Float[Tensor, "point *run candidate output"],
    sharpness: Sharpness = None,
    metric: Float[Tensor, "... in in"] | None = None,
) -> tuple[Float[Tensor, "*run"], Float[Tensor, "*run candidate value"], Float[Tensor, "point *run candidate output"]]:
    """Return ``‖target − sums‖²`` with its gradients with respect to inputs and duals.

    With a symmetric ``metric`` the residual ``R`` of the first sum counts as ``⟨R, R·metric⟩``. Of many runs there is
    one value each, from targets that they share or have each.
    """
    predicted, pullback = sums(inputs, duals, sharpness)
    residuals = [one - other for one, other in zip(predicted, target, strict=True)]
    weighted = residuals if metric is None else [residuals[0] @ metric, *residuals[1:]]
    runs = inputs.ndim - 2
    products = [_inner(one, other, runs) for one, other in zip(residuals, weighted, strict=True)]
    to_inputs, to_duals = pullback(tuple(weighted))
    return torch.stack(products).sum(0), 2 * to_inputs, 2 * to_duals


def _inner(one: Tensor, other: Tensor, runs: int) -> Tensor:
    """⟨one, other⟩, of every run where there is a dimension of runs."""
    if runs == 0:
        return torch.dot(one.flatten(), other.flatten())
    return (one * other).flatten(1).sum(1)


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
class DenseSums:
    """Gradient sums of a dense stack in closed form.

    With layer inputs ``A_l`` and signals ``B_l`` propagated back from the duals, the sum of layer ``l`` is
    ``B_lᵀ A_{l−1}``, whatever the number of outputs. The pullback of a cotangent ``C`` is the gradient of ``⟨C, sum⟩``,
    and that is the derivative of ``Σ α f`` along ``C`` in weight space: one tangent pass forward, one adjoint pass
    back.
    """

    names: tuple[str, ...]
    weights: tuple[Float[Tensor, "point *run _ _"], ...]
    biases: tuple[Float[Tensor, "point *run _"] | None, ...]
    scales: tuple[float, ...]
    """By which each layer multiplies its weights on use; ``weights`` include it."""
    curve: "Curve"

    @classmethod
    def at(cls, stack: DenseStack, points: Sequence[Weights], dtype: torch.dtype) -> "DenseSums":
        """Stack the weights of every point."""

        def stacked(name: str) -> Tensor:
            return torch.stack([weights[name].to(dtype) for weights in points])

        return cls(
            names=tuple(name for layer in stack.layers for name in (layer.weight, layer.bias) if name is not None),
            weights=tuple(stacked(layer.weight) * layer.weight_scale for layer in stack.layers),
            biases=tuple(None if layer.bias is None else stacked(layer.bias) for layer in stack.layers),
            scales=tuple(layer.weight_scale for layer in stack.layers),
            curve=relu_curve if stack.activation == "relu" else smooth_curve(stack.apply),
        )

    @property
    def factors(self) -> tuple[float, ...]:
        """The scale behind each sum: the layer's for a weight, 1 for a bias."""
        pairs = (
            (scale,) if bias is None else (scale, 1.0) for scale, bias in zip(self.scales, self.biases, strict=True)
        )
        return tuple(factor for pair in pairs for factor in pair)

    def unscaled(self) -> "DenseSums":
        """Return the sums of gradients by weights as they are used, that is over each layer's own scale."""
        return replace(self, scales=(1.0,) * len(self.scales))

    def rounded(self, dtype: torch.dtype) -> "DenseSums":
        """Return the same sums from matrix products whose factors are rounded to ``dtype``, and nothing else is.

        Some processors multiply short numbers several times faster, and the first steps of a search do not need long
        ones.
        """
        return replace(self, weights=tuple(weight.to(dtype) for weight in self.weights))

    @classmethod
    def side_by_side(cls, each: Sequence["DenseSums"]) -> "DenseSums":
        """Return the sums of many networks of one shape, one a run."""
        first = each[0]
        biases = [
            None if bias is None else torch.stack([one.biases[layer] for one in each], 1)  # type: ignore[misc]
            for layer, bias in enumerate(first.biases)
        ]
        weights = [torch.stack([one.weights[layer] for one in each], 1) for layer in range(len(first.weights))]
        return replace(first, weights=tuple(weights), biases=tuple(biases))

    def within(self, basis: Float[Tensor, "value coordinate"]) -> "DenseSums":
        """Return the sums as functions of coordinates: inputs are ``coordinates @ basisᵀ``, the basis orthonormal.

        The first layer's sum is in coordinates too. Nothing is lost: it vanishes outside the span of the inputs.
        """
        return replace(self, weights=(self.weights[0] @ basis, *self.weights[1:]))

    def outputs(self, inputs: Float[Tensor, "candidate value"]) -> Float[Tensor, "point candidate output"]:
        """Return what the network says to ``inputs`` at every point, its ReLUs sharp."""
        heard = inputs
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            height = heard @ weight.mT
            height = height if bias is None else height + bias[:, None]
            heard = height if layer == len(self.weights) - 1 else self.curve(height, None)[0]
        return heard

    def __call__(
        self,
        inputs: Float[Tensor, "*run candidate value"],
        duals: Float[Tensor, "point *run candidate output"],
        sharpness: Sharpness = None,
    ) -> tuple[Sums, Pullback]:
        """Return one sum a parameter (and run), and the pullback to flat ``inputs`` and to ``duals``."""
        last, runs, short = len(self.weights) - 1, inputs.ndim - 2, self.weights[0].dtype
        heard, slopes, bends, signals, arriving = self._pass(inputs, duals, sharpness)
        sums: list[Tensor] = []
        for signal, below, bias, scale in zip(signals, heard, self.biases, self.scales, strict=True):
            sums.append(_scaled(_outer(signal.to(short), below.to(short), runs).to(inputs), scale))
            if bias is not None:
                sums.append(signal.sum((0, -2)))

        def pullback(cotangents: Sums) -> tuple[Tensor, Tensor]:
            given = iter(cotangents)
            pairs = [
                (_scaled(next(given), scale).to(short), None if bias is None else next(given))
                for bias, scale in zip(self.biases, self.scales, strict=True)
            ]
            motions: list[Tensor] = []  # how pre-activations move when the weights move along the cotangent
            for layer, (weight, bias) in enumerate(pairs):
                motion = _moved(heard[layer], weight, bias, runs)
                if layer > 0:
                    motion = motion + _through(slopes[layer - 1] * motions[-1], self.weights[layer].mT, runs)
                motions.append(motion)

            adjoint: Tensor | None = None  # of the pre-activations; none at the output, which is linear
            for layer in reversed(range(last)):
                reaching = _along(signals[layer + 1], pairs[layer + 1][0], runs)
                if adjoint is not None:
                    reaching = reaching + _through(adjoint, self.weights[layer + 1], runs)
                adjoint = slopes[layer] * reaching
                bend = bends[layer]
                if bend is not None:
                    adjoint = adjoint + bend * motions[layer] * arriving[layer]
            to_inputs = _product(signals[0].sum(0), pairs[0][0])
            if adjoint is not None:
                to_inputs = to_inputs + _through(adjoint, self.weights[0], runs).sum(0)
            return to_inputs, motions[-1].expand(duals.shape)

        return tuple(sums), pullback

    def squared_norms(
        self,
        inputs: Float[Tensor, "candidate value"],
        duals: Float[Tensor, "point candidate output"],
        sharpness: Sharpness = None,
    ) -> Float[Tensor, " candidate"]:
        """Return the squared norm of each candidate's own share of the sums, without ever writing one out.

        A share of a layer is ``Σ_p s_p ⊗ a_p`` over the points, so that its square is ``Σ_pq (s_p·s_q)(a_p·a_q)``.
        """
        heard, _, _, signals, _ = self._pass(inputs, duals, sharpness)
        total = inputs.new_zeros(len(inputs))
        for signal, below, bias, scale in zip(signals, heard, self.biases, self.scales, strict=True):
            each = below.expand(len(signal), *below.shape[-2:])
            products = torch.einsum("pju,qju->jpq", signal, signal) * torch.einsum("pjv,qjv->jpq", each, each)
            total = total + scale**2 * products.sum((1, 2))
            if bias is not None:
                total = total + signal.sum(0).square().sum(-1)
        return total

    def _pass(
        self, inputs: Tensor, duals: Tensor, sharpness: Sharpness
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor | None], list[Tensor], list[Tensor]]:
        """Go forward with the inputs and back with the duals, and return what every layer heard and is told."""
        last, runs = len(self.weights) - 1, inputs.ndim - 2
        heard: list[Tensor] = [inputs]
        slopes: list[Tensor] = []
        bends: list[Tensor | None] = []
        for weight, bias in zip(self.weights[:last], self.biases[:last], strict=True):
            height = _through(heard[-1], weight.mT, runs)
            height = height if bias is None else height + _over_candidates(bias, runs)
            value, slope, bend = self.curve(height, sharpness)
            heard.append(value)
            slopes.append(slope)
            bends.append(bend)

        signals = [duals] * (last + 1)
        arriving = [duals] * last  # what a unit hears from above, before its own slope
        for layer in reversed(range(last)):
            arriving[layer] = _through(signals[layer + 1], self.weights[layer + 1], runs)
            signals[layer] = arriving[layer] * slopes[layer]
        return heard, slopes, bends, signals, arriving


def _scaled(tensor: Tensor, scale: float) -> Tensor:
    return tensor if scale == 1.0 else tensor * scale


def _product(values: Tensor, factor: Tensor) -> Tensor:
    """Multiply matrices; a factor of fewer bits is met with as few, and the product is as long as the values again."""
    if factor.dtype == values.dtype:
        return values @ factor
    product: Tensor = values.to(factor.dtype) @ factor
    return product.to(values.dtype)


def _through(values: Tensor, weight: Tensor, runs: int) -> Tensor:
    """Multiply by the weights of every point; runs that share them are rows of one product, so that none is copied."""
    if runs == 0 or weight.ndim == 4:
        return _product(values, weight)
    folded = _product(values.flatten(-3, -2), weight)
    return folded.reshape(len(folded), *values.shape[-3:-1], -1)


def _over_candidates(bias: Tensor, runs: int) -> Tensor:
    """Shape a bias (point, unit) or (point, run, unit) so that it is added to every candidate."""
    return bias[:, None] if runs == 0 else bias.reshape(len(bias), -1, 1, bias.shape[-1])


def _along(values: Tensor, cotangent: Tensor, runs: int) -> Tensor:
    """Multiply by a cotangent, which all points share and every run has of its own."""
    if runs == 0 or values.ndim == 3:
        return _product(values, cotangent)
    return torch.stack([_product(at_point, cotangent) for at_point in values])  # a broadcast would copy it


def _moved(values: Tensor, weight: Tensor, bias: Tensor | None, runs: int) -> Tensor:
    """Apply a layer whose weight and bias are a cotangent."""
    if runs == 0 and weight.dtype == values.dtype:
        return nn.functional.linear(values, weight, bias)
    moved = _along(values, weight.mT, runs)
    return moved if bias is None else moved + bias.unsqueeze(-2)


def _outer(signal: Tensor, below: Tensor, runs: int) -> Tensor:
    """Σ over points and candidates of ``signal ⊗ below``, as one matrix product (a run and a point)."""
    if below.ndim == signal.ndim - 1:  # the inputs, which all points share
        return signal.sum(0).mT @ below
    if runs == 0:
        return signal.flatten(0, 1).mT @ below.flatten(0, 1)
    total = signal[0].mT @ below[0]
    for one, other in zip(signal[1:], below[1:], strict=True):
        total = torch.baddbmm(total, one.mT, other)
    return total


Curve = Callable[[Tensor, Sharpness], tuple[Tensor, Tensor, Tensor | None]]
"""From pre-activations to values, slopes and bends (second derivatives; None where they vanish)."""


def relu_curve(heights: Tensor, sharpness: Sharpness) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return a ReLU, or the softplus that stands in for it, with two derivatives.

    >>> relu_curve(torch.tensor([-1.0, 2.0]), None)
    (tensor([0., 2.]), tensor([0., 1.]), None)
    """
    if sharpness is None:
        return heights.relu(), (heights > 0).to(heights), None
    sharpened = sharpness * heights
    slope = sharpened.sigmoid()
    # softplus(a) = −log sigmoid(−a): exact at both ends, and the quickest of its spellings on a CPU.
    value = nn.functional.logsigmoid(-sharpened) / -sharpness
    return value, slope, sharpness * slope * (1 - slope)


def gated_curve(heights: Tensor, sharpness: Sharpness) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return a ReLU whose derivative is taken to be a sigmoid: exact forwards, soft backwards (Haim et al. 2022).

    >>> gated_curve(torch.tensor([-1.0, 2.0]), torch.tensor(1e3))[1]
    tensor([0., 1.])
    """
    if sharpness is None:
        return relu_curve(heights, None)
    slope = (sharpness * heights).sigmoid()
    return heights.relu(), slope, sharpness * slope * (1 - slope)


def smooth_curve(function: Callable[[Tensor], Tensor]) -> Curve:
    """Return an elementwise function with its own two derivatives, whatever the sharpness."""

    def along(inner: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
        # Elementwise, so a push of ones through the function is the derivative at every entry.
        pushed: Tensor = torch.func.jvp(inner, (at,), (torch.ones_like(at),))[1]
        return pushed

    def curve(heights: Tensor, sharpness: Sharpness) -> tuple[Tensor, Tensor, Tensor | None]:
        def slope(at: Tensor) -> Tensor:
            return along(function, at)

        return function(heights), slope(heights), along(slope, heights)

    return curve


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
        return torch.stack([outputs_of(model, dict(model.state_dict()), shaped) for model in self.models])


def _module_sum(model: nn.Module, inputs: Tensor, duals: Tensor, sharpness: Sharpness) -> dict[str, Tensor]:
    parameters, buffers = split_weights(model, dict(model.state_dict()))
    if sharpness is not None:
        buffers |= {name: sharpness for name in buffers if name.rpartition(".")[2] == "sharpness"}

    def weighted_output(moved: dict[str, Tensor]) -> Tensor:
        return (outputs_of(model, {**moved, **buffers}, inputs) * duals).sum()

    gradients: dict[str, Tensor] = torch.func.grad(weighted_output)(parameters)
    return gradients
