"""Activations with two derivatives, sharp and soft: what gradient sums in closed form need to know of units."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Turn = Callable[[Tensor, Tensor], Tensor]
"""From how heights and values move to how slopes do, which is the second derivative times how heights move."""
Curve = Callable[[Tensor], tuple[Tensor, Tensor, Turn | None]]
"""From heights (pre-activations) to values, slopes, and how slopes turn (None where they do not)."""

NO_DIFFERENCE = 40.0
"""Beyond here softplus and its argument are the same number, in float64 too."""


@dataclass(frozen=True)
class Activation:
    """An elementwise activation, and the smooth one that stands in for it where it has an edge.

    The stand-in is the one of sharpness one. Stand-ins of ReLUs need no other: ``softplus(βz)/β`` is the same curve in
    units ``β`` times as fine, so that a network of sharpness ``β`` is one of sharpness one whose inputs and biases are
    counted in such units.
    """

    sharp: Curve
    soft: Curve | None = None

    @classmethod
    def relu(cls, *, gates_only: bool = False) -> "Activation":
        """Return a ReLU; with ``gates_only`` its stand-in is exact forwards and soft backwards (Haim et al. 2022)."""
        return cls(_relu, _gated_relu if gates_only else _softplus)

    @classmethod
    def smooth(cls, function: Callable[[Tensor], Tensor]) -> "Activation":
        """Return an elementwise function with its own two derivatives."""

        def along(inner: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
            # Elementwise, so a push of ones through the function is the derivative at every entry.
            pushed: Tensor = torch.func.jvp(inner, (at,), (torch.ones_like(at),))[1]
            return pushed

        def slope(at: Tensor) -> Tensor:
            return along(function, at)

        def curve(heights: Tensor) -> tuple[Tensor, Tensor, Turn]:
            return function(heights), slope(heights), lambda motion, _: along(slope, heights) * motion

        return cls(curve)


def _relu(heights: Tensor) -> tuple[Tensor, Tensor, Turn | None]:
    """Return a ReLU and its gates.

    >>> _relu(torch.tensor([-1.0, 2.0]))
    (tensor([0., 2.]), tensor([0., 1.]), None)
    """
    return heights.relu(), (heights > 0).to(heights), None


def _softplus(heights: Tensor) -> tuple[Tensor, Tensor, Turn | None]:
    """Return softplus, its slope, and how that turns.

    >>> value, slope, turn = _softplus(torch.tensor([0.0]))
    >>> slope, turn(torch.ones(1), slope)
    (tensor([0.5000]), tensor([0.2500]))
    """
    slope = heights.sigmoid()
    return nn.functional.softplus(heights, threshold=NO_DIFFERENCE), slope, _turn_of_sigmoid(slope)


def _gated_relu(heights: Tensor) -> tuple[Tensor, Tensor, Turn | None]:
    """Return a ReLU whose derivative is taken to be a sigmoid.

    >>> _gated_relu(torch.tensor([-1e3, 2e3]))[1]
    tensor([0., 1.])
    """
    slope = heights.sigmoid()
    return heights.relu(), slope, _turn_of_sigmoid(slope)


def _turn_of_sigmoid(slope: Tensor) -> Turn:
    """Return ``slope·(1 − slope)·motion``, from ``slope·motion``: one pass, and no second derivative in memory."""
    return lambda _, moved: torch.addcmul(moved, slope, moved, value=-1)
