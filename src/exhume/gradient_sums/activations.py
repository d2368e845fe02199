"""Activations with two derivatives, exact and smooth, as gradient sums in closed form need them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

SlopeTangent = Callable[[Tensor], Tensor]
"""From tangents of the pre-activations to the tangent of the slopes."""
Curve = Callable[[Tensor], tuple[Tensor, Tensor, SlopeTangent | None]]
"""From pre-activations to values, slopes, and the tangent map of slopes (None where slopes are constant)."""
SmoothCurve = Callable[[Tensor, Tensor | None, Tensor], tuple[Tensor, Tensor]]
"""From pre-activations, which are overwritten, a bias that is added to them, and the sharpness to values and slopes,
which are sigmoids."""

SOFTPLUS_THRESHOLD = 40.0
"""Argument above which softplus is computed as its argument; they differ by exp(−40), less than float64 resolves."""


def softplus(pre_activations: Tensor) -> Tensor:
    """Return ``log(1 + exp(z))``, the smooth ReLU of sharpness one; that of sharpness ``β`` is ``softplus(βz)/β``."""
    return nn.functional.softplus(pre_activations, threshold=SOFTPLUS_THRESHOLD)


@dataclass(frozen=True)
class Activation:
    """An elementwise activation, and a smooth replacement where it has an edge."""

    exact: Curve
    smooth: SmoothCurve | None = None

    @classmethod
    def relu(cls, *, gates_only: bool = False) -> "Activation":
        """Return a ReLU; with ``gates_only`` only the slopes of its replacement are smooth (Haim et al. 2022)."""
        return cls(_relu, _gated_relu if gates_only else _softplus)

    @classmethod
    def differentiable(cls, function: Callable[[Tensor], Tensor]) -> "Activation":
        """Return an elementwise function with its own two derivatives."""

        def derivative(inner: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
            # Elementwise, so a push of ones through the function is the derivative at every entry.
            pushed: Tensor = torch.func.jvp(inner, (at,), (torch.ones_like(at),))[1]
            return pushed

        def slope(at: Tensor) -> Tensor:
            return derivative(function, at)

        def curve(at: Tensor) -> tuple[Tensor, Tensor, SlopeTangent]:
            return function(at), slope(at), lambda tangent: derivative(slope, at) * tangent

        return cls(curve)


def _relu(pre_activations: Tensor) -> tuple[Tensor, Tensor, SlopeTangent | None]:
    """Return a ReLU and its gates.

    >>> _relu(torch.tensor([-1.0, 2.0]))
    (tensor([0., 2.]), tensor([0., 1.]), None)
    """
    return pre_activations.relu(), (pre_activations > 0).to(pre_activations), None


def _softplus(pre_activations: Tensor, bias: Tensor | None, sharpness: Tensor) -> tuple[Tensor, Tensor]:
    """Return a softplus and its slope.

    >>> _softplus(torch.tensor([0.0]), None, torch.tensor(2.0))
    (tensor([0.3466]), tensor([0.5000]))
    """
    if bias is not None:
        pre_activations = pre_activations.add_(bias)
    sharp = pre_activations.mul_(sharpness)
    return softplus(sharp).div_(sharpness), sharp.sigmoid()


def _gated_relu(pre_activations: Tensor, bias: Tensor | None, sharpness: Tensor) -> tuple[Tensor, Tensor]:
    """Return a ReLU whose derivative is taken to be a sigmoid.

    >>> _gated_relu(torch.tensor([-1e3, 2e3]), torch.ones(2), torch.tensor(2.0))
    (tensor([   0., 2001.]), tensor([0., 1.]))
    """
    if bias is not None:
        pre_activations = pre_activations.add_(bias)
    return pre_activations.relu(), pre_activations.mul_(sharpness).sigmoid_()


def sigmoid_adjoint(
    slope: Tensor, value_tangent: Tensor, signals: Tensor, arriving: Tensor | None, sharpness: Tensor
) -> Tensor:
    """Return the adjoint of pre-activations whose slopes are sigmoids; ``arriving`` is overwritten.

    The slopes move by ``sharpness·slope·(1 − slope)`` times the tangent of the pre-activations, and ``value_tangent``
    is already ``slope`` times that: no second derivative is kept in memory.

    Args:
        slope: of the units.
        value_tangent: tangent of their values.
        signals: what the slopes multiply in backpropagation.
        arriving: adjoint of the values; None: zero.
        sharpness: of the sigmoids.

    >>> half = torch.tensor(0.5)
    >>> sigmoid_adjoint(half, half, torch.tensor(2.0), torch.tensor(3.0), torch.tensor(10.0))
    tensor(6.5000)
    """
    turned = torch.addcmul(value_tangent, slope, value_tangent, value=-1).mul_(signals).mul_(sharpness)
    return turned if arriving is None else turned.add_(arriving.mul_(slope))
