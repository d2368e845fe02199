"""Gradient sums of dense stacks in closed form: a few matrix products, no autograd graph.

Many *runs* can be computed at once, each with inputs, duals and sums of its own. They share the weights (restarts of
one attack) or have their own (networks of one shape).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.gradient_sums.activations import Activation, SlopeTangent, sigmoid_adjoint
from exhume.gradient_sums.interface import Duals, GradientSums, Inputs, Pullback, Sharpness, Sums, Targets
from exhume.gradient_sums.residuals import (
    Rows,
    add_product,
    apply_matrix,
    compact,
    layer_residual,
    leave_out,
    sum_outer_products,
)
from exhume.models.structure import DenseStack
from exhume.records import Weights


@dataclass(frozen=True)
class DenseSums(GradientSums):
    """Gradient sums of a dense stack in closed form.

    With layer inputs ``A_l`` and signals ``B_l`` propagated back from the duals, the sum of layer ``l`` is
    ``B_lᵀ A_{l−1}``, for any number of outputs. The pullback of a cotangent ``C`` is the gradient of ``⟨C, sum⟩``,
    which is the derivative of ``Σ α f`` along ``C`` in weight space: one tangent pass forward, one adjoint pass back.
    """

    names: tuple[str, ...]
    weights: tuple[Float[Tensor, "point *run _ _"], ...]
    biases: tuple[Float[Tensor, "point *run _"] | None, ...]
    scales: tuple[float, ...]
    """The factor by which each layer multiplies its weights; ``weights`` include it."""
    activation: Activation
    known: Float[Tensor, "row unit"] | None = None
    """Orthonormal effects of known inputs on the first layer. Squared residuals are then of what these leave of the
    first layer's sum, and of no other parameter."""
    rounds_rows: bool = False
    """Whether squared residuals round inputs, signals and everything between to the dtype of the weights."""

    @classmethod
    def at(
        cls, stack: DenseStack, points: Sequence[Weights], dtype: torch.dtype, *, gates_only: bool = False
    ) -> "DenseSums":
        """Stack the weights of every point."""

        def stacked(name: str) -> Tensor:
            return torch.stack([weights[name].to(dtype) for weights in points])

        is_relu = stack.activation == "relu"
        return cls(
            names=tuple(name for layer in stack.layers for name in (layer.weight, layer.bias) if name is not None),
            weights=tuple(stacked(layer.weight) * layer.weight_scale for layer in stack.layers),
            biases=tuple(None if layer.bias is None else stacked(layer.bias) for layer in stack.layers),
            scales=tuple(layer.weight_scale for layer in stack.layers),
            activation=Activation.relu(gates_only=gates_only) if is_relu else Activation.differentiable(stack.apply),
        )

    @property
    def parameter_scales(self) -> tuple[float, ...]:
        """The factor of each parameter: its layer's for a weight, 1 for a bias."""
        pairs = (
            (scale,) if bias is None else (scale, 1.0) for scale, bias in zip(self.scales, self.biases, strict=True)
        )
        return tuple(factor for pair in pairs for factor in pair)

    @property
    def names_of_first(self) -> tuple[str, ...]:
        """The parameters of the first layer."""
        return self.names[: 1 if self.biases[0] is None else 2]

    def unscaled(self) -> "DenseSums":
        """Return the sums of gradients by weights as they are used, after multiplication by their scales."""
        return replace(self, scales=(1.0,) * len(self.scales))

    def rounded(self, dtype: torch.dtype, *, rows: bool = False) -> "DenseSums":
        """Return the same sums with the factors of matrix products rounded to ``dtype``.

        Some processors multiply short numbers several times faster, and the first steps of a search do not need long
        ones. With ``rows`` all values between products are short, too, which halves the traffic to memory: most of the
        time of a GPU.
        """
        return replace(self, weights=tuple(weight.to(dtype) for weight in self.weights), rounds_rows=rows)

    def compact(self, target: Sums, candidates: int) -> Targets:
        """Return the target with low-rank factors where they save work; in float64, a check, it stays as it is."""
        if target[0].dtype == torch.float64:
            return target
        return tuple(compact(matrix, candidates * len(self.weights[0])) for matrix in target)

    @classmethod
    def side_by_side(cls, each: Sequence["DenseSums"]) -> "DenseSums":
        """Return the sums of many networks of one shape, one per run; one network many times shares its weights."""
        first = each[0]
        if all(one is first for one in each):
            return first
        biases = [
            None if bias is None else torch.stack([one.biases[layer] for one in each], 1)  # type: ignore[misc]
            for layer, bias in enumerate(first.biases)
        ]
        weights = [torch.stack([one.weights[layer] for one in each], 1) for layer in range(len(first.weights))]
        return replace(first, weights=tuple(weights), biases=tuple(biases))

    @property
    def takes_coordinates(self) -> bool:
        """Whether the sums take coordinates of a subspace: always."""
        return True

    def within(self, basis: Float[Tensor, "value coordinate"]) -> "DenseSums":
        """Return the sums as functions of coordinates: inputs are ``coordinates @ basisᵀ``, the basis orthonormal.

        The first layer's sum is in coordinates too. Nothing is lost, since it vanishes outside the span of the inputs.
        """
        return replace(self, weights=(self.weights[0] @ basis, *self.weights[1:]))

    def outputs(self, inputs: Inputs) -> Duals:
        """Return the outputs of the network at every point, with exact ReLUs."""
        values, runs = inputs, inputs.ndim - 2
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            product = _multiply(values, weight.mT, runs)
            pre_activations = product if bias is None else product + _over_candidates(bias, runs)
            is_last = layer == len(self.weights) - 1
            values = pre_activations if is_last else self.activation.exact(pre_activations)[0]
        return values

    def __call__(self, inputs: Inputs, duals: Duals, sharpness: Sharpness = None) -> tuple[Sums, Pullback]:
        """Return one sum per parameter (and run), and the pullback to flat ``inputs`` and to ``duals``."""
        passes = _Passes.through(self, inputs, duals, sharpness)
        sums: list[Tensor] = []
        for (signals, layer_inputs), bias in zip(passes.layers, self.biases, strict=True):
            sums.append(sum_outer_products(signals, layer_inputs, 1.0, self._factor_dtype))
            if bias is not None:
                sums.append(signals.sum((0, -2)))

        def pullback(cotangents: Sums) -> tuple[Tensor, Tensor]:
            remaining = iter(cotangents)
            applied: list[_Applied] = []
            for (signals, layer_inputs), bias in zip(passes.layers, self.biases, strict=True):
                products = apply_matrix(signals, layer_inputs, next(remaining), self._factor_dtype)
                applied.append(_Applied(*products, None if bias is None else next(remaining)))
            return passes.pull(applied)

        return tuple(sums), pullback

    def squared_residual(
        self,
        target: Targets,
        inputs: Inputs,
        duals: Duals,
        sharpness: Sharpness = None,
        metric: Float[Tensor, "... in in"] | None = None,
        factors: Sequence[float] | None = None,
    ) -> tuple[Float[Tensor, "*run"], Inputs, Duals]:
        """Return ``‖target − sums‖²`` and its gradients; parameters with factor zero cost nothing."""
        if self.known is not None:
            factors = [float(name in self.names_of_first) for name in self.names]
        exact = inputs.dtype
        if self.rounds_rows:
            inputs, duals = inputs.to(self._factor_dtype), duals.to(self._factor_dtype)
            sharpness = None if sharpness is None else sharpness.to(self._factor_dtype)
        passes = _Passes.through(self, inputs, duals, sharpness)
        remaining = iter(zip(target, (1.0,) * len(target) if factors is None else factors, strict=True))
        squares: list[Tensor] = []
        applied: list[_Applied] = []
        for layer, ((signals, layer_inputs), bias) in enumerate(zip(passes.layers, self.biases, strict=True)):
            own = _Applied()
            known = self.known if layer == 0 else None
            wanted, factor = next(remaining)
            if factor != 0:
                of_layer = metric if layer == 0 else None
                residual = layer_residual(signals, layer_inputs, factor, wanted, self._factor_dtype, of_layer, known)
                squares.append(residual.square)
                own = _Applied(_scale(factor, residual.forward), _scale(factor, residual.backward))
            if bias is not None:
                wanted, factor = next(remaining)
                assert isinstance(wanted, Tensor)
                if factor != 0:
                    offset = leave_out(known, factor * signals.sum((0, -2), dtype=wanted.dtype) - wanted)
                    squares.append(offset.square().sum(-1))
                    own = replace(own, offset=factor * offset)
            applied.append(own)
        to_inputs, to_duals = passes.pull(applied)
        return torch.stack(squares).sum(0).to(exact), 2 * to_inputs.to(exact), 2 * to_duals.to(exact)

    @property
    def _factor_dtype(self) -> torch.dtype:
        return self.weights[0].dtype

    def squared_norms(
        self,
        inputs: Float[Tensor, "candidate value"],
        duals: Float[Tensor, "point candidate output"],
        sharpness: Sharpness = None,
    ) -> Float[Tensor, " candidate"]:
        """Return the squared norm of each candidate's own contribution, without writing one out.

        The contribution to a layer is ``Σ_p s_p ⊗ a_p`` over the points, so its square is ``Σ_pq (s_p·s_q)(a_p·a_q)``.
        """
        passes = _Passes.through(self, inputs, duals, sharpness)
        total = inputs.new_zeros(len(inputs))
        for (signals, layer_inputs), bias in zip(passes.layers, self.biases, strict=True):
            signal_products = torch.einsum("pju,qju->jpq", signals, signals)
            products = signal_products * torch.einsum("pjv,qjv->jpq", layer_inputs, layer_inputs)
            total = total + products.sum((1, 2))
            if bias is not None:
                total = total + signals.sum(0).square().sum(-1)
        return total


@dataclass(frozen=True)
class _Applied:
    """A cotangent of a layer's weights and bias, applied to the layer's inputs and signals; None: zero."""

    forward: Rows | None = None
    """Inputs times the cotangent."""
    backward: Rows | None = None
    """Signals times the cotangent."""
    offset: Float[Tensor, "*run unit"] | None = None
    """The cotangent of the bias."""


@dataclass(frozen=True)
class _Passes:
    """One pass forward with the inputs and one back with the duals."""

    sums: DenseSums
    runs: int
    """Number of dimensions of runs: 0 or 1."""
    sharpness: Tensor | None
    """Of slopes that are sigmoids: of all runs, or of each; None where units are exact."""
    inputs: list[Tensor]
    """Per layer."""
    slopes: list[Tensor]
    """Per hidden layer, as the two below."""
    slope_tangents: list[SlopeTangent | None]
    """None where slopes are constant, and where they are sigmoids."""
    signals: list[Tensor]
    """Per layer, after the slopes of its units."""
    signals_before_slopes: list[Tensor]

    @classmethod
    def through(cls, sums: DenseSums, inputs: Tensor, duals: Tensor, sharpness: Sharpness) -> "_Passes":
        last, runs = len(sums.weights) - 1, inputs.ndim - 2
        smooth = sums.activation.smooth if sharpness is not None else None
        sharp = None if smooth is None else _over_rows(sharpness)
        layer_inputs: list[Tensor] = [inputs]
        slopes: list[Tensor] = []
        slope_tangents: list[SlopeTangent | None] = []
        for weight, bias in zip(sums.weights[:last], sums.biases[:last], strict=True):
            pre_activations = _multiply(layer_inputs[-1], weight.mT, runs)
            offset = None if bias is None else _over_candidates(bias, runs).to(inputs.dtype)
            slope_tangent = None
            if smooth is None or sharp is None:
                pre_activations = pre_activations if offset is None else pre_activations.add_(offset)
                values, slope, slope_tangent = sums.activation.exact(pre_activations)
            else:
                values, slope = smooth(pre_activations, offset, sharp)
            layer_inputs.append(values)
            slopes.append(slope)
            slope_tangents.append(slope_tangent)
        signals, before_slopes = [duals] * (last + 1), [duals] * last
        for layer in reversed(range(last)):
            before_slopes[layer] = _multiply(signals[layer + 1], sums.weights[layer + 1], runs)
            signals[layer] = before_slopes[layer] * slopes[layer]
        return cls(sums, runs, sharp, layer_inputs, slopes, slope_tangents, signals, before_slopes)

    @property
    def layers(self) -> list[tuple[Rows, Rows]]:
        """Signals and inputs per layer; the first layer has the same inputs at every point, so its signals add up."""
        first = self.signals[0] if len(self.signals[0]) == 1 else self.signals[0].sum(0, keepdim=True)
        signals = [first, *self.signals[1:]]
        inputs = [self.inputs[0][None], *self.inputs[1:]]
        return [
            (signal, layer_inputs if scale == 1.0 else scale * layer_inputs)
            for signal, layer_inputs, scale in zip(signals, inputs, self.sums.scales, strict=True)
        ]

    def pull(self, applied: Sequence[_Applied]) -> tuple[Tensor, Tensor]:
        """Return gradients by inputs and duals from the applied cotangent of every layer, which is overwritten.

        Intermediate results are changed in place, since a fresh tensor costs more than the arithmetic.
        """
        weights, last = self.sums.weights, len(self.sums.weights) - 1
        tangents: list[Tensor] = []  # of pre-activations, when the weights move along the cotangent
        value_tangents: list[Tensor] = []  # of the inputs of the next layer
        for layer, own in enumerate(applied):
            tangent = own.forward
            if layer > 0:
                value_tangents.append(self.slopes[layer - 1] * tangents[-1])
                tangent = _multiply(value_tangents[-1], weights[layer].mT, self.runs, onto=tangent)
            assert tangent is not None, "the first layer always counts"
            if own.offset is not None:
                tangent = tangent.add_(own.offset.unsqueeze(-2).to(tangent.dtype))
            tangents.append(tangent)

        adjoint: Tensor | None = None  # of the pre-activations; none at the output, which is linear
        for layer in reversed(range(last)):
            arriving = _scale(self.sums.scales[layer + 1], applied[layer + 1].backward)
            if adjoint is not None:
                arriving = _multiply(adjoint, weights[layer + 1], self.runs, onto=arriving)
            slope, before = self.slopes[layer], self.signals_before_slopes[layer]
            if self.sharpness is not None:
                adjoint = sigmoid_adjoint(slope, value_tangents[layer], before, arriving, self.sharpness)
                continue
            adjoint = None if arriving is None else arriving.mul_(slope)
            if (slope_tangent := self.slope_tangents[layer]) is not None:
                turned = slope_tangent(tangents[layer])
                adjoint = turned.mul_(before) if adjoint is None else torch.addcmul(adjoint, turned, before)
        arriving = _scale(self.sums.scales[0], applied[0].backward)
        assert arriving is not None
        to_inputs = arriving[0]
        if adjoint is not None:
            to_inputs = to_inputs + _multiply(adjoint, weights[0], self.runs).sum(0)
        return to_inputs, tangents[-1].expand(self.signals[-1].shape)


def _scale(factor: float, rows: Tensor | None) -> Tensor | None:
    return rows if rows is None or factor == 1.0 else factor * rows


def _multiply(values: Tensor, weight: Tensor, runs: int, onto: Tensor | None = None) -> Tensor:
    """Multiply by the weights of every point, and add the product to ``onto`` where there is one.

    Runs that share the weights are rows of one product, so that none is copied. Values are rounded to the dtype of the
    weights, and the product has the dtype of the values.
    """
    rows, is_shared = values.to(weight.dtype), runs > 0 and weight.ndim == 3
    if onto is not None:
        dims = (1, 2) if is_shared else (0, -3)
        flat = rows.flatten(*dims)
        factor = weight if is_shared else weight.flatten(*dims)
        total = add_product(onto.view(*flat.shape[:-1], -1), flat, factor, in_place=runs > 0)
        return total.view(onto.shape)
    if not is_shared:
        return (rows @ weight).to(values.dtype)
    folded = (rows.flatten(-3, -2) @ weight).to(values.dtype)
    return folded.reshape(len(folded), *values.shape[-3:-1], -1)


def _over_rows(sharpness: Sharpness) -> Tensor:
    """Shape a sharpness, of all runs or one per run, so that it multiplies rows."""
    assert sharpness is not None
    return sharpness if sharpness.ndim == 0 else sharpness[:, None, None]


def _over_candidates(bias: Tensor, runs: int) -> Tensor:
    """Shape a bias (point, unit) or (point, run, unit) so that it is added to every candidate."""
    return bias[:, None] if runs == 0 else bias.reshape(len(bias), -1, 1, bias.shape[-1])
