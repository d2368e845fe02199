"""The arc-cosine recursions of infinitely wide ReLU networks, with derivatives, elementwise on the inner products.

Layer by layer, the covariance ``k`` of two inputs' pre-activations and their variances ``q`` give the angle between
them, ``cos θ = k/√(q q')``, and from it the moments of the activations (Cho and Saul 2009; Jacot et al. 2018)::

    E[φφ']  = √(q q')·(sin θ + (π − θ) cos θ)/2π        E[φ̇φ̇'] = (π − θ)/2π

Where two inputs coincide or are parallel, the kernel has a kink. The derivative of the angle is set to zero there,
which is the middle of its possible values.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import threshold

Table = Float[Tensor, "left right"]

ROUNDING = 8
"""Squared sines below this many units of rounding count as zero, because rounding alone can produce them."""


@dataclass(frozen=True)
class KernelSlopes:
    """A kernel and its derivatives."""

    kernel: Table
    by_product: Table
    """With respect to the mean product of two inputs."""
    by_log_square: Table
    """With respect to the logarithm of the left input's mean square."""


@dataclass(frozen=True, kw_only=True)
class LayerGains:
    """The numbers of an infinitely wide network that its kernel depends on."""

    depth: int
    weight_variance: float
    """Variance of the initial weights, times the fan-in."""
    bias_variance: float
    """Variance of the initial biases."""
    first: float
    """Contribution of the first layer's weights to the kernel, per unit of the mean product of inputs."""
    hidden: float
    """Contribution of the weights of any other layer, per unit of the mean product of the layer's inputs."""
    bias: float
    """Contribution of each layer's bias."""

    @property
    def at_zero_angle(self) -> list[float]:
        """Contribution of each hidden layer's weights for parallel inputs, relative to both inputs' lengths."""
        return [self.hidden * (self.weight_variance / 2) ** (level + 1) for level in range(self.depth)]


def kernel_diagonal(gains: LayerGains, squares: Float[Tensor, " input"]) -> Float[Tensor, " input"]:
    """Return the kernel of inputs with themselves from their mean squares."""
    kernel = gains.first * squares + gains.bias
    variance = gains.weight_variance * squares + gains.bias_variance
    for _ in range(gains.depth):
        kernel = gains.hidden * variance / 2 + gains.bias + gains.weight_variance * kernel / 2
        variance = gains.weight_variance * variance / 2 + gains.bias_variance
    return kernel


def kernel_with_slopes(
    gains: LayerGains,
    products: Table,
    rows: Float[Tensor, " left"],
    columns: Float[Tensor, " right"],
    *,
    same: bool = False,
) -> KernelSlopes:
    """Return the kernel and its derivatives from mean products and mean squares.

    Args:
        gains: of the network.
        products: mean products of left and right inputs.
        rows: mean squares of left inputs.
        columns: mean squares of right inputs.
        same: whether left and right inputs are the same set, so that the angles on the diagonal are exactly zero.
    """
    if gains.bias_variance:
        return _with_random_biases(gains, products, rows, columns)
    return _homogeneous(gains, products, rows, columns, same)


def _homogeneous(gains: LayerGains, products: Table, rows: Tensor, columns: Tensor, same: bool) -> KernelSlopes:
    """Compute the kernel of a network without random biases.

    It is ``s·F(c) + b·G(c)`` with the product ``s`` of the lengths and one cosine ``c``. ``F``, ``G`` and their
    derivatives are carried up the layers together, so that no layer's values need to be stored.
    """
    left, right = rows.sqrt(), columns.sqrt()
    scale = left[:, None] * right
    inverse_scale = _reciprocal(left)[:, None] * _reciprocal(right)
    cosine = (products * inverse_scale).clamp_(-1.0, 1.0)
    if same:
        cosine.fill_diagonal_(1.0)
    one, rounding = cosine.new_ones(()), ROUNDING * torch.finfo(cosine.dtype).eps
    half = gains.weight_variance / 2
    by_length, length_slope = gains.first * cosine, torch.full_like(cosine, gains.first)
    by_bias, bias_slope = torch.ones_like(cosine), torch.zeros_like(cosine)
    slope: Tensor | None = None  # of the layer's cosine by the first layer's; None stands for one
    for level in gains.at_zero_angle:
        square = torch.addcmul(one, cosine, cosine, value=-1.0)
        # The threshold makes 1/sine zero where the angle is zero, which puts the slope in the middle of the kink.
        inverse_sine = threshold(square, rounding, math.inf).rsqrt_()
        sine = square.mul_(inverse_sine)
        on = torch.add(one, torch.atan2(sine, cosine), alpha=-1.0 / math.pi)
        on_slope = inverse_sine if slope is None else inverse_sine.mul_(slope)
        slope = on if slope is None else slope * on
        cosine = (cosine * on).add_(sine, alpha=1.0 / math.pi)
        length_slope = length_slope.mul_(on).addcmul_(on_slope, by_length, value=1.0 / math.pi)
        length_slope = length_slope.mul_(half).add_(slope, alpha=level)
        by_length = by_length.mul_(on).mul_(half).add_(cosine, alpha=level)
        if gains.bias:
            bias_slope = bias_slope.mul_(on).addcmul_(on_slope, by_bias, value=1.0 / math.pi).mul_(half)
            by_bias = by_bias.mul_(on).mul_(half).add_(1.0)
    stretched = by_length.mul_(scale)
    kernel, by_product = stretched, length_slope
    if gains.bias:
        kernel = torch.add(stretched, by_bias, alpha=gains.bias)
        by_product = length_slope.addcmul_(bias_slope, inverse_scale, value=gains.bias)
    return KernelSlopes(kernel, by_product, torch.addcmul(stretched, by_product, products, value=-1.0).mul_(0.5))


def _reciprocal(lengths: Tensor) -> Tensor:
    """Return the reciprocal of each length, and zero for zero."""
    return torch.where(lengths > 0, lengths.reciprocal(), 0.0)


def _with_random_biases(gains: LayerGains, products: Table, rows: Tensor, columns: Tensor) -> KernelSlopes:
    """Compute the kernel going up the layers with separate variances, and its derivatives going down again."""
    spread, shift = gains.weight_variance, gains.bias_variance
    k, p, q = spread * products + shift, spread * rows[:, None] + shift, spread * columns + shift
    kernel = gains.first * products + gains.bias
    tiny, rounding = torch.finfo(k.dtype).tiny, ROUNDING * torch.finfo(k.dtype).eps
    layers = []
    for _ in range(gains.depth):
        scale = (p * q).sqrt_().clamp_(min=tiny)
        cosine = (k / scale).clamp_(-1.0, 1.0)
        sine = threshold(1.0 - cosine.square(), rounding, 0.0).sqrt_()
        both_on = torch.atan2(sine, cosine).sub_(math.pi).div_(-2 * math.pi)
        length = (scale * sine).div_(2 * math.pi)
        moment = torch.addcmul(length, k, both_on)
        layers.append((kernel, p, scale, cosine, sine, both_on, length))
        kernel = (gains.hidden * moment).add_(gains.bias).addcmul_(kernel, both_on, value=spread)
        k, p, q = (spread * moment).add_(shift), spread * p / 2 + shift, spread * q / 2 + shift
    to_kernel, to_k, to_p = torch.ones_like(products), torch.zeros_like(products), torch.zeros_like(products)
    for before, p, scale, cosine, sine, both_on, length in reversed(layers):
        to_moment = (gains.hidden * to_kernel).add_(to_k, alpha=spread)
        to_angle = (before * to_kernel).div_(sine.masked_fill_(sine == 0, torch.inf)).mul_(spread / (2 * math.pi))
        to_square = (length * to_moment).addcmul_(cosine, to_angle, value=-1).div_((2 * p).clamp_(min=tiny))
        to_p = to_square.add_(to_p, alpha=spread / 2)
        to_k = to_moment.mul_(both_on).addcdiv_(to_angle, scale)
        to_kernel = to_kernel.mul_(both_on).mul_(spread)
    by_product = to_kernel.mul_(gains.first).add_(to_k, alpha=spread)
    return KernelSlopes(kernel, by_product, to_p.mul_(spread * rows[:, None]))
