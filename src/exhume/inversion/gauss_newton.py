"""Gauss–Newton with Levenberg–Marquardt damping for many systems at once, inside a box, without forming a Jacobian.

Every example has its own damping and its own conjugate gradients; one product with all Jacobians costs two passes
through the function. Away from its kinks a trunk of convolutions, pooling and ReLU is linear, so that the method
ends in a few steps once the right units are on.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Trunk = Callable[[Float[Tensor, "example ..."]], Float[Tensor, "example feature"]]
"""From inputs to flat features."""
Products = tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]
"""From directions of inputs to directions of features, and back."""


@dataclass(frozen=True)
class InputBox:
    """The lowest and the highest value of every input value, in the shape of one input; infinite where unbounded."""

    lowest: Float[Tensor, "..."]
    highest: Float[Tensor, "..."]

    def double(self) -> "InputBox":
        """Return the same box in float64."""
        return InputBox(self.lowest.double(), self.highest.double())

    @property
    def width(self) -> Float[Tensor, "..."]:
        """The width of every range; 1 where it is unbounded."""
        width = self.highest - self.lowest
        return torch.where(width.isfinite(), width, 1.0)

    def clamp(self, inputs: Float[Tensor, "example ..."]) -> Float[Tensor, "example ..."]:
        """Return the nearest points inside."""
        return torch.minimum(torch.maximum(inputs, self.lowest), self.highest)

    def is_held(
        self, inputs: Float[Tensor, "example ..."], gradient: Float[Tensor, "example ..."]
    ) -> Bool[Tensor, "example ..."]:
        """Return which values lie at an end of their range and would leave it by a step down the gradient."""
        return ((inputs <= self.lowest) & (gradient > 0)) | ((inputs >= self.highest) & (gradient < 0))


def jacobian_products(trunk: Trunk, inputs: Float[Tensor, "example ..."]) -> tuple[Tensor, Products]:
    """Return the features of inputs, and the products with the Jacobian at these inputs and its transpose."""
    pulling: tuple[Tensor, Callable[[Tensor], tuple[Tensor]]] = torch.func.vjp(trunk, inputs)  # type: ignore[assignment]
    features, pull_back = pulling

    def forward(directions: Tensor) -> Tensor:
        pushed: Tensor = torch.func.jvp(trunk, (inputs,), (directions,))[1]
        return pushed

    def backward(directions: Tensor) -> Tensor:
        return pull_back(directions)[0]

    return features, (forward, backward)


def solve_damped(
    products: Products,
    gradient: Float[Tensor, "example ..."],
    damping: Float[Tensor, " example"],
    is_free: Bool[Tensor, "example ..."],
    iterations: int,
    tolerance: float = 1e-3,
) -> Float[Tensor, "example ..."]:
    """Solve ``(JᵀJ + damping) step = −gradient`` on the free values by conjugate gradients, for each example."""
    forward, backward = products
    shape = (-1, *[1] * (gradient.ndim - 1))
    damping = damping.reshape(shape)
    step = torch.zeros_like(gradient)
    remaining = -gradient * is_free
    direction, size = remaining, _dot(remaining, remaining)
    enough, tiny = size * tolerance**2, torch.finfo(gradient.dtype).tiny
    for _ in range(iterations):
        if bool((size <= enough).all()):
            break
        image = (backward(forward(direction)) + damping * direction) * is_free
        curvature = _dot(direction, image)
        length = torch.where(curvature > 0, size / curvature.clamp(min=tiny), torch.zeros_like(size))
        step = step + length * direction
        remaining = remaining - length * image
        new = _dot(remaining, remaining)
        direction = remaining + torch.where(size > 0, new / size.clamp(min=tiny), torch.zeros_like(size)) * direction
        size = new
    return step


class MatrixFreeSteps:
    """Damped Gauss–Newton steps by conjugate gradients; memory grows with the size of one input only."""

    def __init__(self, trunk: Trunk, iterations: int) -> None:
        self.trunk, self.iterations = trunk, iterations

    def __call__(
        self,
        inputs: Float[Tensor, "example ..."],
        features: Float[Tensor, "example feature"],
        damping: Tensor,
        box: InputBox,
    ) -> Float[Tensor, "example ..."]:
        """Return one step per example."""
        values, products = jacobian_products(self.trunk, inputs)
        gradient = products[1](values - features)
        return solve_damped(products, gradient, damping, ~box.is_held(inputs, gradient), self.iterations)


Steps = Callable[[Tensor, Tensor, Tensor, InputBox], Tensor]
"""From inputs, features, the damping per example and the box to one step per example."""


def minimise_residuals(
    trunk: Trunk,
    features: Float[Tensor, "example feature"],
    inputs: Float[Tensor, "example ..."],
    box: InputBox,
    *,
    take_step: Steps,
    steps: int,
    tick: Callable[[], None] = lambda: None,
) -> Float[Tensor, "example ..."]:
    """Minimise ``‖trunk(x) − h‖²`` for each example, starting at ``inputs``.

    Args:
        trunk: the function to invert.
        features: what it should return, one row per example.
        inputs: starting points inside the box.
        box: the range of inputs.
        take_step: how a damped Gauss–Newton step is computed.
        steps: largest number of steps.
        tick: called before each step; may raise to stop.
    """
    inputs = inputs.clone()
    damping = torch.full((len(inputs),), 1e-6).to(inputs)
    active = torch.arange(len(inputs), device=inputs.device)
    loss = _losses(trunk, features, inputs)
    for _ in range(steps):
        if len(active) == 0:
            break
        tick()
        old = loss[active]
        moved = inputs[active] + take_step(inputs[active], features[active], damping[active], box)
        moved = box.clamp(moved)
        new = _losses(trunk, features[active], moved)
        is_better = new < old
        inputs[active[is_better]], loss[active[is_better]] = moved[is_better], new[is_better]
        damping[active] = torch.where(is_better, damping[active] / 10, damping[active] * 100).clamp(1e-12, 1e6)
        # At the level of rounding a step no longer helps; where no damping helps, the wrong units are on.
        active = active[torch.where(is_better, new < 0.25 * old, damping[active] < 1e3)]
    return inputs


def _losses(trunk: Trunk, features: Tensor, inputs: Tensor) -> Tensor:
    with torch.no_grad():
        return (trunk(inputs) - features).square().sum(dim=1)


def _dot(left: Tensor, right: Tensor) -> Tensor:
    """Return the inner product per example, in a shape that broadcasts against inputs."""
    return (left * right).flatten(1).sum(dim=1).reshape(-1, *[1] * (left.ndim - 1))
