"""Kernel regression: the predictions of a network of infinite width after training to convergence."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.core.errors import ExhumeError
from exhume.kernels.infinite_ntk import InfiniteNTK

JITTER = 1e-5
"""Added to a kernel's diagonal before solving, relative to the diagonal's mean; the value of Loo et al. (2023)."""


def add_jitter(kernel: Float[Tensor, "n n"], jitter: float = JITTER) -> Float[Tensor, "n n"]:
    """Return ``K + jitter·tr(K)/n·I``, which can be solved even when inputs coincide.

    >>> add_jitter(2 * torch.eye(2), 0.5)
    tensor([[3., 0.],
            [0., 3.]])
    """
    return kernel + torch.diag_embed((jitter * kernel.diagonal().mean()).expand(len(kernel)))


def cholesky(kernel: Float[Tensor, "n n"], jitter: float = JITTER) -> Float[Tensor, "n n"]:
    """Return the Cholesky factor of the kernel with jitter, without waiting for the device to report whether it exists.

    Without jitter enough to make the kernel positive definite, the result is meaningless.
    """
    factor: Tensor = torch.linalg.cholesky_ex(add_jitter(kernel, jitter)).L
    return factor


def solve_duals(
    kernel: Float[Tensor, "n n"], targets: Float[Tensor, "n output"], jitter: float = JITTER
) -> Float[Tensor, "n output"]:
    """Return ``(K + jitter)⁻¹ y``.

    Raises:
        ExhumeError: when the kernel is not positive definite, as happens in float32 when the jitter is too small.
    """
    factor, failed = torch.linalg.cholesky_ex(add_jitter(kernel, jitter))
    if bool(failed):
        raise ExhumeError(f"The kernel is not positive definite with a jitter of {jitter:g}; raise it or use float64.")
    return torch.cholesky_solve(targets, factor)


@dataclass(frozen=True, kw_only=True, eq=False)
class KernelRegression:
    """``f(z) = Σ_i α_i k(x_i, z)``: a trained network of infinite width, as a function."""

    kernel: InfiniteNTK
    inputs: Float[Tensor, "n value"]
    duals: Float[Tensor, "n output"]

    @classmethod
    def fit(
        cls,
        kernel: InfiniteNTK,
        inputs: Float[Tensor, "n ..."],
        targets: Float[Tensor, "n output"],
        jitter: float = JITTER,
    ) -> "KernelRegression":
        """Fit targets at network inputs, in the precision of the inputs (prefer float64)."""
        flat = inputs.flatten(1)
        return cls(kernel=kernel, inputs=flat, duals=solve_duals(kernel(flat), targets.to(flat), jitter))

    def __call__(self, inputs: Float[Tensor, "m ..."]) -> Float[Tensor, "m output"]:
        """Return the predictions at ``inputs``."""
        return self.kernel(inputs.flatten(1).to(self.inputs), self.inputs) @ self.duals

    def with_vjp(
        self, inputs: Float[Tensor, "m value"]
    ) -> tuple[Float[Tensor, "m output"], Callable[[Float[Tensor, "m output"]], Float[Tensor, "m value"]]]:
        """Return the predictions, and the function from a cotangent of them to the gradient by ``inputs``."""
        kernel, vjp = self.kernel.with_vjp(inputs, self.inputs)
        return kernel @ self.duals, lambda cotangent: vjp(cotangent @ self.duals.T)

    @property
    def squared_norm(self) -> float:
        """``‖f‖²`` in the kernel's own norm, summed over outputs."""
        return float((self.duals * (self.kernel(self.inputs) @ self.duals)).sum())
