"""The arc-cosine recursions, as values and slopes by elementwise operations on the table of inner products.

Layer by layer the covariance ``k`` of two inputs' pre-activations and their variances ``q`` give the angle between
them, ``cos θ = k/√(q q')``, and with it what the next layer hears (Cho and Saul 2009; Jacot et al. 2018)::

    E[φφ']  = √(q q')·(sin θ + (π − θ) cos θ)/2π        E[φ̇φ̇'] = (π − θ)/2π

Where two inputs coincide (or are parallel) the kernel has a kink, and the slope of the angle is taken to be zero, which
is the middle of what it may be.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import threshold

Table = Float[Tensor, "left right"]

ROUNDING = 8
"""Angles whose squared sine is below so many units of rounding are zero: nothing else can be told of them."""


@dataclass(frozen=True)
class Swept:
    """A kernel and its slopes."""

    kernel: Table
    by_product: Table
    """By the mean product of two inputs."""
    by_log_square: Table
    """By the logarithm of the left input's mean square."""


@dataclass(frozen=True, kw_only=True)
class Gains:
    """What a network of infinite width is, for its kernel."""

    depth: int
    spread: float
    """The variance of weights, times the fan-in."""
    shift: float
    """The variance that biases are drawn with."""
    first: float
    """What the first layer's weights add to the kernel, relative to the mean product of inputs."""
    other: float
    """What the weights of any other layer add, relative to what they hear."""
    bias: float
    """What each layer's bias adds."""

    @property
    def levels(self) -> list[float]:
        """What each hidden layer's weights add at an angle of zero, relative to the lengths of both inputs."""
        return [self.other * (self.spread / 2) ** (level + 1) for level in range(self.depth)]


def on_diagonal(gains: Gains, squares: Float[Tensor, " input"]) -> Float[Tensor, " input"]:
    """Return the kernel of inputs with themselves from their mean squares."""
    kernel, variance = gains.first * squares + gains.bias, gains.spread * squares + gains.shift
    for _ in range(gains.depth):
        kernel = gains.other * variance / 2 + gains.bias + gains.spread * kernel / 2
        variance = gains.spread * variance / 2 + gains.shift
    return kernel


def sweep(
    gains: Gains, products: Table, rows: Float[Tensor, " left"], columns: Float[Tensor, " right"], *, same: bool = False
) -> Swept:
    """Return the kernel and its slopes from mean products and mean squares.

    Args:
        gains: of the network.
        products: of left and right inputs.
        rows: the mean squares of left inputs.
        columns: the mean squares of right inputs.
        same: whether left and right are one set, so that the diagonal is at an angle of exactly zero.
    """
    if gains.shift:
        return _with_drawn_biases(gains, products, rows, columns)
    return _homogeneous(gains, products, rows, columns, same)


def _homogeneous(gains: Gains, products: Table, rows: Tensor, columns: Tensor, same: bool) -> Swept:
    """Without drawn biases the kernel is ``s·F(c) + b·G(c)`` with the lengths' product ``s`` and one cosine ``c``.

    ``F``, ``G`` and their slopes go up the layers together, so nothing need be kept to come down again.
    """
    left, right = rows.sqrt(), columns.sqrt()
    scale = left[:, None] * right
    over_scale = _over(left)[:, None] * _over(right)
    cosine = (products * over_scale).clamp_(-1.0, 1.0)
    if same:
        cosine.fill_diagonal_(1.0)
    one, rounding = cosine.new_ones(()), ROUNDING * torch.finfo(cosine.dtype).eps
    half = gains.spread / 2
    by_length, length_slope = gains.first * cosine, torch.full_like(cosine, gains.first)
    by_bias, bias_slope = torch.ones_like(cosine), torch.zeros_like(cosine)
    slope: Tensor | None = None  # of the layer's cosine by the first one; at the first layer, one
    for level in gains.levels:
        square = torch.addcmul(one, cosine, cosine, value=-1.0)
        over_sine = threshold(
            square, rounding, math.inf
        ).rsqrt_()  # zero where the angle is, so that kinks have a middle
        sine = square.mul_(over_sine)
        on = torch.add(one, torch.atan2(sine, cosine), alpha=-1.0 / math.pi)
        on_slope = over_sine if slope is None else over_sine.mul_(slope)
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
        by_product = length_slope.addcmul_(bias_slope, over_scale, value=gains.bias)
    return Swept(kernel, by_product, torch.addcmul(stretched, by_product, products, value=-1.0).mul_(0.5))


def _over(lengths: Tensor) -> Tensor:
    """Return one over each, and zero over zero."""
    return torch.where(lengths > 0, lengths.reciprocal(), 0.0)


def _with_drawn_biases(gains: Gains, products: Table, rows: Tensor, columns: Tensor) -> Swept:
    """Go up the layers with every variance of its own, and down again with the slopes."""
    spread, shift = gains.spread, gains.shift
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
        heard = torch.addcmul(length, k, both_on)
        layers.append((kernel, p, scale, cosine, sine, both_on, length))
        kernel = (gains.other * heard).add_(gains.bias).addcmul_(kernel, both_on, value=spread)
        k, p, q = (spread * heard).add_(shift), spread * p / 2 + shift, spread * q / 2 + shift
    to_kernel, to_k, to_p = torch.ones_like(products), torch.zeros_like(products), torch.zeros_like(products)
    for before, p, scale, cosine, sine, both_on, length in reversed(layers):
        to_heard = (gains.other * to_kernel).add_(to_k, alpha=spread)
        to_angle = (before * to_kernel).div_(sine.masked_fill_(sine == 0, torch.inf)).mul_(spread / (2 * math.pi))
        to_square = (length * to_heard).addcmul_(cosine, to_angle, value=-1).div_((2 * p).clamp_(min=tiny))
        to_p = to_square.add_(to_p, alpha=spread / 2)
        to_k = to_heard.mul_(both_on).addcdiv_(to_angle, scale)
        to_kernel = to_kernel.mul_(both_on).mul_(spread)
    by_product = to_kernel.mul_(gains.first).add_(to_k, alpha=spread)
    return Swept(kernel, by_product, to_p.mul_(spread * rows[:, None]))
