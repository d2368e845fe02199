"""The tangent kernel of a ReLU network of infinite width.

The kernel and its derivatives are a few elementwise operations on the inner products of inputs
(:mod:`exhume.kernels.recursions`), so gradients with respect to inputs need no autograd graph.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt
from torch import Tensor

from exhume.core.errors import ExhumeError
from exhume.core.settings import settings
from exhume.kernels.recursions import LayerGains, kernel_diagonal, kernel_with_slopes
from exhume.models.architecture import Architecture
from exhume.models.mlp import MLP

VJP = Callable[[Float[Tensor, "left right"]], Float[Tensor, "left value"]]
"""From a cotangent of the kernel to the gradient by its left inputs (by all inputs, where there are no right ones)."""


@settings
class InfiniteNTK:
    """``depth`` hidden ReLU layers whose weights have the standard deviation ``weight_std/√fan-in``.

    >>> kernel = InfiniteNTK(depth=1, width=None, bias_gain=0.0)
    >>> kernel(torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    tensor([[1.0000, 0.1592]])
    """

    depth: NonNegativeInt = 2
    weight_std: NonNegativeFloat = 1.0
    bias_std: NonNegativeFloat = 0.0
    """Standard deviation of the initial biases."""
    width: PositiveInt | None = 4096
    """Units per hidden layer in the standard parameterisation, where a layer's contribution to the kernel grows with
    its fan-in; None: the NTK parameterisation, where it does not."""
    bias_gain: NonNegativeFloat = 1.0
    """Contribution of each layer's bias to the kernel; 0 without biases. In the NTK parameterisation of Jacot et al.
    (2018) it is ``bias_std²``."""

    @classmethod
    def of(cls, architecture: Architecture) -> "InfiniteNTK":
        """Return the limit of the tangent kernel of an architecture as its width grows.

        Raises:
            ExhumeError: when the limit of this architecture has no known formula.
        """
        if (
            not isinstance(architecture, MLP)
            or architecture.parameterisation not in ("standard", "ntk")
            or architecture.bias == "first"
        ):
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
        """Return the kernel; it can be differentiated once with respect to left and right inputs."""
        kernel: Tensor = _Kernel.apply(self, left.flatten(1), None if right is None else right.flatten(1))  # type: ignore[no-untyped-call]
        return kernel

    def diagonal(self, inputs: Float[Tensor, "input ..."]) -> Float[Tensor, " input"]:
        """Return the kernel of each input with itself, which depends on the input's length only."""
        flat = inputs.flatten(1)
        squares = flat.square().sum(1) / flat.shape[1]
        return kernel_diagonal(self._gains(flat.shape[1]), squares)

    def with_vjp(
        self,
        left: Float[Tensor, "left value"],
        right: Float[Tensor, "right value"] | None = None,
        right_squares: Float[Tensor, " right"] | None = None,
        size: int | None = None,
    ) -> tuple[Float[Tensor, "left right"], VJP]:
        """Return the kernel, and the function from a cotangent of it to the gradient by ``left``.

        Args:
            left: flat inputs.
            right: flat inputs that are constants; None: ``left`` again, and the gradient counts both its places.
            right_squares: the squared lengths of ``right``, if they are known already.
            size: the number of values per input, where ``left`` and ``right`` are coordinates in a smaller space.
        """
        size = left.shape[1] if size is None else size
        others = left if right is None else right
        products = (left @ others.T) / size
        if right is None:
            rows = products.diagonal()
            columns = rows
        else:
            rows = left.square().sum(1) / size
            columns = (right.square().sum(1) if right_squares is None else right_squares) / size
        slopes = kernel_with_slopes(self._gains(size), products, rows, columns, same=right is None)

        def vjp(cotangent: Tensor) -> Tensor:
            if right is None:  # an input occurs in a row and in a column of the symmetric kernel
                cotangent = cotangent + cotangent.T
            along = (cotangent * slopes.by_product) @ others
            tiny = torch.finfo(rows.dtype).tiny
            stretch = (cotangent * slopes.by_log_square).sum(1).mul_(2.0).div_(rows.clamp(min=tiny))
            return along.addcmul_(stretch[:, None], left).div_(size)

        return slopes.kernel, vjp

    def _gains(self, size: int) -> LayerGains:
        """Return the gains of the network for inputs of ``size`` values."""
        variance = self.weight_std**2
        return LayerGains(
            depth=self.depth,
            weight_variance=variance,
            bias_variance=self.bias_std**2,
            first=variance if self.width is None else float(size),
            hidden=variance if self.width is None else float(self.width),
            bias=self.bias_gain,
        )


class _Kernel(torch.autograd.Function):
    """The kernel for autograd, differentiated by its closed form."""

    @staticmethod
    def forward(ctx: Any, kernel: InfiniteNTK, left: Tensor, right: Tensor | None) -> Tensor:
        table, ctx.left_vjp = kernel.with_vjp(left, right)
        if right is not None and right.requires_grad:
            ctx.right_vjp = kernel.with_vjp(right, left)[1]
        return table

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        by_left = ctx.left_vjp(cotangent) if ctx.needs_input_grad[1] else None
        by_right = ctx.right_vjp(cotangent.T) if ctx.needs_input_grad[2] else None
        return None, by_left, by_right
