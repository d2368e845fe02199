"""Activations with two derivatives, exact and smooth, as gradient sums in closed form need them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

SlopeTangent = Callable[[Tensor, Tensor], Tensor]
"""From tangents of the pre-activations and of the values to the tangent of the slopes."""
Curve = Callable[[Tensor], tuple[Tensor, Tensor, SlopeTangent | None]]
"""From pre-activations to values, slopes, and the tangent map of slopes (None where slopes are constant)."""

SOFTPLUS_THRESHOLD = 40.0
"""Argument above which softplus is computed as its argument; they differ by exp(−40), less than float64 resolves."""


def softplus(pre_activations: Tensor) -> Tensor:
    """Return ``log(1 + exp(z))``, the smooth ReLU of sharpness one.

    A smooth ReLU of sharpness ``β`` is ``softplus(βz)/β``: the same curve in units ``β`` times as fine.
    """
    return nn.functional.softplus(pre_activations, threshold=SOFTPLUS_THRESHOLD)


@dataclass(frozen=True)
class Activation:
    """An elementwise activation, and a smooth replacement where it has an edge.

    The replacement has sharpness one. ReLUs need no other: a network of sharpness ``β`` is one of sharpness one whose
    inputs and biases are counted in units ``β`` times as fine.
    """

    exact: Curve
    smooth: Curve | None = None

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
            return function(at), slope(at), lambda tangent, _: derivative(slope, at) * tangent

        return cls(curve)


def _relu(pre_activations: Tensor) -> tuple[Tensor, Tensor, SlopeTangent | None]:
    """Return a ReLU and its gates.

    >>> _relu(torch.tensor([-1.0, 2.0]))
    (tensor([0., 2.]), tensor([0., 1.]), None)
    """
    return pre_activations.relu(), (pre_activations > 0).to(pre_activations), None


def _softplus(pre_activations: Tensor) -> tuple[Tensor, Tensor, SlopeTangent | None]:
    """Return softplus, its slope, and the tangent map of its slope.

    >>> value, slope, slope_tangent = _softplus(torch.tensor([0.0]))
    >>> slope, slope_tangent(torch.ones(1), slope)
    (tensor([0.5000]), tensor([0.2500]))
    """
    slope = pre_activations.sigmoid()
    return softplus(pre_activations), slope, _sigmoid_tangent(slope)


def _gated_relu(pre_activations: Tensor) -> tuple[Tensor, Tensor, SlopeTangent | None]:
    """Return a ReLU whose derivative is taken to be a sigmoid.

    >>> _gated_relu(torch.tensor([-1e3, 2e3]))[1]
    tensor([0., 1.])
    """
    slope = pre_activations.sigmoid()
    return pre_activations.relu(), slope, _sigmoid_tangent(slope)


def _sigmoid_tangent(slope: Tensor) -> SlopeTangent:
    """Return ``slope·(1 − slope)·tangent`` from ``slope·tangent``: one pass, and no second derivative in memory."""
    return lambda _, value_tangent: torch.addcmul(value_tangent, slope, value_tangent, value=-1)
