"""Gradient sums of dense stacks in closed form: a handful of matrix products, no autograd graph."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.gradient_sums.activations import Activation, Turn
from exhume.gradient_sums.residuals import Gain, LowRank, Rows, acting, outer, plus_product, residual
from exhume.models.structure import DenseStack
from exhume.records import Weights

Sums = tuple[Tensor, ...]
Targets = tuple[Tensor | LowRank, ...]
"""What sums are compared with, one a parameter; matrices may be thin factors."""
Pullback = Callable[[Sums], tuple[Tensor, Tensor]]
Sharpness = Float[Tensor, ""] | None
"""The β of softplus(βz)/β, which stands in for a ReLU because it has a second derivative; None keeps the ReLU."""


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
    activation: Activation

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
            activation=Activation.relu(gates_only=gates_only) if is_relu else Activation.smooth(stack.apply),
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
        """Return the same sums from products with weights and residuals that are rounded to ``dtype``.

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
            heard = height if layer == len(self.weights) - 1 else self.activation.sharp(height)[0]
        return heard

    def __call__(
        self,
        inputs: Float[Tensor, "*run candidate value"],
        duals: Float[Tensor, "point *run candidate output"],
        sharpness: Sharpness = None,
    ) -> tuple[Sums, Pullback]:
        """Return one sum a parameter (and run), and the pullback to flat ``inputs`` and to ``duals``."""
        walk = _Walk.through(self, inputs, duals, sharpness)
        sums: list[Tensor] = []
        for (signal, heard), bias in zip(walk.layers, self.biases, strict=True):
            sums.append(outer(signal, heard, walk.gain, self._short))
            if bias is not None:
                sums.append(signal.sum((0, -2)))

        def pullback(cotangents: Sums) -> tuple[Tensor, Tensor]:
            given = iter(cotangents)
            acts: list[_Act] = []
            for (signal, heard), bias in zip(walk.layers, self.biases, strict=True):
                moves = acting(signal, heard, next(given), self._short)
                acts.append(_Act(*moves, None if bias is None else next(given)))
            return walk.pulled(acts)

        return tuple(sums), pullback

    def squared_residual(
        self,
        target: Targets,
        inputs: Float[Tensor, "*run candidate value"],
        duals: Float[Tensor, "point *run candidate output"],
        sharpness: Sharpness = None,
        metric: Float[Tensor, "... in in"] | None = None,
        factors: Sequence[float] | None = None,
    ) -> tuple[
        Float[Tensor, "*run"], Float[Tensor, "*run candidate value"], Float[Tensor, "point *run candidate output"]
    ]:
        """Return ``‖target − sums‖²`` and its gradients, as :func:`~exhume.gradient_sums.sums.squared_residual`.

        With ``factors``, one a parameter, every sum is multiplied by its own first; what has none costs nothing.
        """
        walk = _Walk.through(self, inputs, duals, sharpness)
        given = iter(zip(target, (1.0,) * len(target) if factors is None else factors, strict=True))
        squares: list[Tensor] = []
        acts: list[_Act] = []
        for layer, ((signal, heard), bias) in enumerate(zip(walk.layers, self.biases, strict=True)):
            act = _Act()
            wanted, factor = next(given)
            if factor != 0:
                left = residual(signal, heard, factor * walk.gain, wanted, self._short, metric if layer == 0 else None)
                squares.append(left.square)
                act = _Act(_times(factor, left.motions), _times(factor, left.reaching))
            if bias is not None:
                wanted, factor = next(given)
                assert isinstance(wanted, Tensor)
                if factor != 0:
                    offset = factor * signal.sum((0, -2)) - wanted
                    squares.append(offset.square().sum(-1))
                    act = replace(act, offset=factor * offset)
            acts.append(act)
        to_inputs, to_duals = walk.pulled(acts)
        return torch.stack(squares).sum(0), 2 * to_inputs, 2 * to_duals

    @property
    def _short(self) -> torch.dtype:
        return self.weights[0].dtype

    def squared_norms(
        self,
        inputs: Float[Tensor, "candidate value"],
        duals: Float[Tensor, "point candidate output"],
        sharpness: Sharpness = None,
    ) -> Float[Tensor, " candidate"]:
        """Return the squared norm of each candidate's own share of the sums, without ever writing one out.

        A share of a layer is ``Σ_p s_p ⊗ a_p`` over the points, so that its square is ``Σ_pq (s_p·s_q)(a_p·a_q)``.
        """
        walk = _Walk.through(self, inputs, duals, sharpness)
        total = inputs.new_zeros(len(inputs))
        for (signal, heard), bias in zip(walk.layers, self.biases, strict=True):
            products = torch.einsum("pju,qju->jpq", signal, signal) * torch.einsum("pjv,qjv->jpq", heard, heard)
            total = total + walk.gain**2 * products.sum((1, 2))
            if bias is not None:
                total = total + signal.sum(0).square().sum(-1)
        return total


@dataclass(frozen=True)
class _Act:
    """What a cotangent of a layer's weights and bias does to what the layer heard and was told."""

    motions: Rows | None = None
    reaching: Rows | None = None
    offset: Float[Tensor, "*run unit"] | None = None


@dataclass(frozen=True)
class _Walk:
    """One way forward with the inputs and back with the duals.

    Soft units have sharpness one here. A sharper network is the same one in finer units: what layers hear, heights and
    biases are counted in them, ``gain`` turns a sum into the true one, signals and slopes have no unit.
    """

    sums: DenseSums
    runs: int
    unit: Gain
    heard: list[Tensor]
    slopes: list[Tensor]
    turns: list[Turn | None]
    signals: list[Tensor]
    arriving: list[Tensor]
    """What a unit hears from above, before its own slope."""

    @classmethod
    def through(cls, sums: DenseSums, inputs: Tensor, duals: Tensor, sharpness: Sharpness) -> "_Walk":
        last, runs = len(sums.weights) - 1, inputs.ndim - 2
        soft = sums.activation.soft if sharpness is not None else None
        curve, unit = (sums.activation.sharp, 1.0) if soft is None else (soft, sharpness)
        assert unit is not None
        heard: list[Tensor] = [unit * inputs]
        slopes: list[Tensor] = []
        turns: list[Turn | None] = []
        for weight, bias in zip(sums.weights[:last], sums.biases[:last], strict=True):
            height = _through(heard[-1], weight.mT, runs)
            height = height if bias is None else height.add_(_over_candidates(unit * bias, runs))
            value, slope, turn = curve(height)
            heard.append(value)
            slopes.append(slope)
            turns.append(turn)
        signals, arriving = [duals] * (last + 1), [duals] * last
        for layer in reversed(range(last)):
            arriving[layer] = _through(signals[layer + 1], sums.weights[layer + 1], runs)
            signals[layer] = arriving[layer] * slopes[layer]
        return cls(sums, runs, unit, heard, slopes, turns, signals, arriving)

    @property
    def gain(self) -> Gain:
        return 1 / self.unit

    @property
    def layers(self) -> list[tuple[Rows, Rows]]:
        """Signals and what was heard, layer by layer; the first hears the same at every point, so signals add up."""
        told = [self.signals[0].sum(0, keepdim=True), *self.signals[1:]]
        listened = [self.heard[0][None], *self.heard[1:]]
        return [
            (signal, heard if scale == 1.0 else scale * heard)
            for signal, heard, scale in zip(told, listened, self.sums.scales, strict=True)
        ]

    def pulled(self, acts: Sequence[_Act]) -> tuple[Tensor, Tensor]:
        """Return gradients by inputs and duals, given what the cotangent of every layer does; uses that up.

        What follows changes its own intermediate results in place: a fresh tensor costs more than the arithmetic.
        """
        weights, last = self.sums.weights, len(self.sums.weights) - 1
        motions: list[Tensor] = []  # how heights move when the weights move along the cotangent
        moved: list[Tensor] = []  # and with them what the next layer hears
        for layer, act in enumerate(acts):
            motion = act.motions
            if layer > 0:
                moved.append(self.slopes[layer - 1] * motions[-1])
                motion = _through(moved[-1], weights[layer].mT, self.runs, onto=motion)
            assert motion is not None, "the first layer always counts"
            if act.offset is not None:
                motion = motion.add_((self.unit * act.offset).unsqueeze(-2))
            motions.append(motion)

        adjoint: Tensor | None = None  # of the heights; none at the output, which is linear
        for layer in reversed(range(last)):
            reaching = _times(self.sums.scales[layer + 1], acts[layer + 1].reaching)
            if adjoint is not None:
                reaching = _through(adjoint, weights[layer + 1], self.runs, onto=reaching)
            adjoint = None if reaching is None else reaching.mul_(self.slopes[layer])
            turn = self.turns[layer]
            if turn is not None:
                turned = turn(motions[layer], moved[layer])
                arriving = self.arriving[layer]
                adjoint = turned.mul_(arriving) if adjoint is None else torch.addcmul(adjoint, turned, arriving)
        reaching = _times(self.sums.scales[0], acts[0].reaching)
        assert reaching is not None
        to_inputs = reaching[0]
        if adjoint is not None:
            to_inputs = to_inputs + _through(adjoint, weights[0], self.runs).sum(0)
        return to_inputs, (self.gain * motions[-1]).expand(self.signals[-1].shape)


def _times(factor: float, rows: Tensor | None) -> Tensor | None:
    return rows if rows is None or factor == 1.0 else factor * rows


def _through(values: Tensor, weight: Tensor, runs: int, onto: Tensor | None = None) -> Tensor:
    """Multiply by the weights of every point; runs that share them are rows of one product, so that none is copied.

    Weights of fewer bits are met with as few, and the product is as long as the values again. Given something to add
    it to, it is added there.
    """
    rows, folds = values.to(weight.dtype), runs > 0 and weight.ndim == 3
    if onto is not None:
        dims = (1, 2) if folds else (0, -3)
        flat = rows.flatten(*dims)
        factor = weight if folds else weight.flatten(*dims)
        total = plus_product(onto.view(*flat.shape[:-1], -1), flat, factor, in_place=runs > 0)
        return total.view(onto.shape)
    if not folds:
        return (rows @ weight).to(values.dtype)
    folded = (rows.flatten(-3, -2) @ weight).to(values.dtype)
    return folded.reshape(len(folded), *values.shape[-3:-1], -1)


def _over_candidates(bias: Tensor, runs: int) -> Tensor:
    """Shape a bias (point, unit) or (point, run, unit) so that it is added to every candidate."""
    return bias[:, None] if runs == 0 else bias.reshape(len(bias), -1, 1, bias.shape[-1])
