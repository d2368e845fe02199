"""The tangent kernel of a ReLU network of infinite width, by the arc-cosine recursions.

Layer by layer the covariance ``k`` of two inputs' pre-activations and their variances ``q`` give the angle between
them, ``cos θ = k/√(q q')``, and with it what the next layer hears (Cho and Saul 2009; Jacot et al. 2018)::

    E[φφ']  = √(q q')·(sin θ + (π − θ) cos θ)/2π        E[φ̇φ̇'] = (π − θ)/2π

Both the kernel and its slopes are a few elementwise operations on the table of inner products, so gradients with
respect to inputs need no graph. Where two inputs coincide (or are parallel) the kernel has a kink, and the slope of the
angle is taken to be zero, which is the middle of what it may be.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import threshold

from exhume.errors import ExhumeError
from exhume.models.architecture import Architecture
from exhume.models.mlp import MLP

Pull = Callable[[Float[Tensor, "left right"]], Float[Tensor, "left value"]]
"""From a cotangent of the kernel to the gradient by its left inputs (by all inputs, where there are no right ones)."""

ROUNDING = 8
"""Angles whose squared sine is below so many units of rounding are zero: nothing else can be told of them."""


@dataclass(frozen=True, kw_only=True)
class InfiniteNTK:
    """``depth`` hidden ReLU layers whose weights have the deviation ``weight_std/√fan-in``.

    >>> kernel = InfiniteNTK(depth=1, width=None, bias_gain=0.0)
    >>> kernel(torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    tensor([[1.0000, 0.1592]])
    """

    depth: int = 2
    weight_std: float = 1.0
    bias_std: float = 0.0
    """The deviation that biases are drawn with."""
    width: int | None = 4096
    """Of hidden layers, in the standard parameterisation, where a layer's share of the kernel grows with its fan-in;
    None: the NTK parameterisation, where it does not."""
    bias_gain: float = 1.0
    """What each layer's bias adds to the kernel; 0 without biases. In the NTK parameterisation of Jacot et al. (2018)
    it is ``bias_std²``."""

    def __post_init__(self) -> None:
        if self.depth < 0 or (self.width is not None and self.width < 1):
            raise ExhumeError(f"A kernel needs depth 0 or more and a positive width, not {self.depth}, {self.width}.")

    @classmethod
    def of(cls, architecture: Architecture) -> "InfiniteNTK":
        """Return the kernel that the tangent kernels of an architecture gather around as its width grows."""
        known = isinstance(architecture, MLP) and architecture.parameterisation in ("standard", "ntk")
        if not isinstance(architecture, MLP) or not known or architecture.bias == "first":
            raise ExhumeError(
                f"The analytic kernel is known for MLPs in the standard or NTK parameterisation with biases in all "
                f"layers or none, not for {architecture}."
            )
        if architecture.activation != "relu" and architecture.depth > 0:
            raise ExhumeError(f"The analytic kernel is known for ReLU, not for {architecture.activation}.")
        return cls(
            depth=architecture.depth,
            width=architecture.width if architecture.parameterisation == "standard" else None,
            bias_gain=float(architecture.bias == "all"),
        )

    def __call__(
        self, left: Float[Tensor, "left ..."], right: Float[Tensor, "right ..."] | None = None
    ) -> Float[Tensor, "left right"]:
        """Return the kernel; gradients flow through it, once, to left and right inputs."""
        kernel: Tensor = _Kernel.apply(self, left.flatten(1), None if right is None else right.flatten(1))  # type: ignore[no-untyped-call]
        return kernel

    def diagonal(self, inputs: Float[Tensor, "input ..."]) -> Float[Tensor, " input"]:
        """Return the kernel of each input with itself, which depends on its length alone."""
        flat = inputs.flatten(1)
        squares = flat.square().sum(1) / flat.shape[1]
        return self._sweep(squares[:, None], squares[:, None], squares[:, None], flat.shape[1])[0][:, 0]

    def with_pull(
        self,
        left: Float[Tensor, "left value"],
        right: Float[Tensor, "right value"] | None = None,
        right_squares: Float[Tensor, " right"] | None = None,
    ) -> tuple[Float[Tensor, "left right"], Pull]:
        """Return the kernel and the pull from a cotangent of it to the gradient by ``left``.

        Args:
            left: flat inputs.
            right: flat inputs that stay as they are; None: ``left`` again, and the pull counts both its places.
            right_squares: the squared lengths of ``right``, where they are known already.
        """
        size = left.shape[1]
        products = (left @ (left if right is None else right).T) / size
        if right is None:
            # Lengths off the same table, so that an input is at an angle of exactly zero to itself.
            rows = products.diagonal()
            columns = rows
        else:
            rows = left.square().sum(1) / size
            columns = (right.square().sum(1) if right_squares is None else right_squares) / size
        kernel, by_product, by_square = self._sweep(products, rows[:, None], columns[None, :], size)

        def pull(cotangent: Tensor) -> Tensor:
            if right is None:  # both places of the table, which is symmetric
                cotangent = cotangent + cotangent.T
            along = (cotangent * by_product) @ (left if right is None else right)
            return along.add_((2.0 * (cotangent * by_square).sum(1))[:, None] * left).div_(size)

        return kernel, pull

    def _sweep(
        self, products: Tensor, rows: Tensor, columns: Tensor, size: int
    ) -> tuple[Float[Tensor, "left right"], Float[Tensor, "left right"], Float[Tensor, "left right"]]:
        """Return the kernel and its slopes by mean products and by the rows' mean squares."""
        spread, shift = self.weight_std**2, self.bias_std**2
        gain = spread if self.width is None else float(self.width)
        first_gain = spread if self.width is None else float(size)
        k, p, q = spread * products + shift, spread * rows + shift, spread * columns + shift
        kernel = first_gain * products + self.bias_gain
        tiny, rounding = torch.finfo(k.dtype).tiny, ROUNDING * torch.finfo(k.dtype).eps
        layers = []
        for _ in range(self.depth):
            scale = (p * q).sqrt_().clamp_(min=tiny)
            cosine = (k / scale).clamp_(-1.0, 1.0)
            sine = threshold(torch.addcmul(torch.ones_like(cosine), cosine, cosine, value=-1), rounding, 0.0).sqrt_()
            both_on = torch.atan2(sine, cosine).sub_(math.pi).div_(-2 * math.pi)
            length = (scale * sine).div_(2 * math.pi)
            heard = torch.addcmul(length, k, both_on)
            layers.append((kernel, p, scale, cosine, sine, both_on, length))
            kernel = (gain * heard).add_(self.bias_gain).addcmul_(kernel, both_on, value=spread)
            k, p, q = (spread * heard).add_(shift), spread * p / 2 + shift, spread * q / 2 + shift

        to_kernel, to_k, to_p = torch.ones_like(products), torch.zeros_like(products), torch.zeros_like(products)
        for before, p, scale, cosine, sine, both_on, length in reversed(layers):
            to_heard = (gain * to_kernel).add_(to_k, alpha=spread)
            # The angle's slope has the sine below it: zero where the angle is, so that kinks have a middle.
            to_angle = (before * to_kernel).div_(sine.masked_fill_(sine == 0, torch.inf)).mul_(spread / (2 * math.pi))
            to_square = (length * to_heard).addcmul_(cosine, to_angle, value=-1).div_((2 * p).clamp_(min=tiny))
            to_p = to_square.add_(to_p, alpha=spread / 2)
            to_k = to_heard.mul_(both_on).addcdiv_(to_angle, scale)
            to_kernel = to_kernel.mul_(both_on).mul_(spread)
        return kernel, to_kernel.mul_(first_gain).add_(to_k, alpha=spread), to_p.mul_(spread)


class _Kernel(torch.autograd.Function):
    """The kernel for autograd, with the slopes of the sweep in place of a graph."""

    @staticmethod
    def forward(ctx: Any, kernel: InfiniteNTK, left: Tensor, right: Tensor | None) -> Tensor:
        table, ctx.pull_left = kernel.with_pull(left, right)
        if right is not None and right.requires_grad:
            ctx.pull_right = kernel.with_pull(right, left)[1]
        return table

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        by_left = ctx.pull_left(cotangent) if ctx.needs_input_grad[1] else None
        by_right = ctx.pull_right(cotangent.T) if ctx.needs_input_grad[2] else None
        return None, by_left, by_right
