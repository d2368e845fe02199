"""The tangent kernel of a ReLU network of infinite width.

Both the kernel and its slopes are a few elementwise operations on the table of inner products
(:mod:`exhume.kernels.recursions`), so gradients with respect to inputs need no graph.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.core.errors import ExhumeError
from exhume.kernels.recursions import Gains, on_diagonal, sweep
from exhume.models.architecture import Architecture
from exhume.models.mlp import MLP

Pull = Callable[[Float[Tensor, "left right"]], Float[Tensor, "left value"]]
"""From a cotangent of the kernel to the gradient by its left inputs (by all inputs, where there are no right ones)."""


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
        return on_diagonal(self._gains(flat.shape[1]), squares)

    def with_pull(
        self,
        left: Float[Tensor, "left value"],
        right: Float[Tensor, "right value"] | None = None,
        right_squares: Float[Tensor, " right"] | None = None,
        size: int | None = None,
    ) -> tuple[Float[Tensor, "left right"], Pull]:
        """Return the kernel and the pull from a cotangent of it to the gradient by ``left``.

        Args:
            left: flat inputs.
            right: flat inputs that stay as they are; None: ``left`` again, and the pull counts both its places.
            right_squares: the squared lengths of ``right``, where they are known already.
            size: how many values an input has, where ``left`` and ``right`` are coordinates in a smaller space.
        """
        size = left.shape[1] if size is None else size
        products = (left @ (left if right is None else right).T) / size
        if right is None:
            rows = products.diagonal()
            columns = rows
        else:
            rows = left.square().sum(1) / size
            columns = (right.square().sum(1) if right_squares is None else right_squares) / size
        swept = sweep(self._gains(size), products, rows, columns, same=right is None)

        def pull(cotangent: Tensor) -> Tensor:
            if right is None:  # both places of the table, which is symmetric
                cotangent = cotangent + cotangent.T
            along = (cotangent * swept.by_product) @ (left if right is None else right)
            stretch = (
                (cotangent * swept.by_log_square).sum(1).mul_(2.0).div_(rows.clamp(min=torch.finfo(rows.dtype).tiny))
            )
            return along.addcmul_(stretch[:, None], left).div_(size)

        return swept.kernel, pull

    def _gains(self, size: int) -> Gains:
        """Return what the network is for inputs of so many values."""
        spread = self.weight_std**2
        return Gains(
            depth=self.depth,
            spread=spread,
            shift=self.bias_std**2,
            first=spread if self.width is None else float(size),
            other=spread if self.width is None else float(self.width),
            bias=self.bias_gain,
        )


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
