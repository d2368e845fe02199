"""Gauss–Newton with Levenberg–Marquardt damping for many systems at once, inside a box, without forming a Jacobian.

Every example has its own damping and its own conjugate gradients; one product with all Jacobians costs two passes
through the function. Away from its kinks a trunk of convolutions, pooling and ReLU is linear, so that the method ends in
a few steps once the right units are on.
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
    features, pull_back = torch.func.vjp(trunk, inputs)

    def forward(directions: Tensor) -> Tensor:
        pushed: Tensor = torch.func.jvp(trunk, (inputs,), (directions,))[1]
        return pushed

    def backward(directions: Tensor) -> Tensor:
        pulled: Tensor = pull_back(directions)[0]
        return pulled

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


def minimise_residuals(
    trunk: Trunk,
    features: Float[Tensor, "example feature"],
    inputs: Float[Tensor, "example ..."],
    box: InputBox,
    *,
    steps: int,
    iterations: int,
    tick: Callable[[], None] = lambda: None,
) -> Float[Tensor, "example ..."]:
    """Minimise ``‖trunk(x) − h‖²`` for each example, starting at ``inputs``.

    Args:
        trunk: the function to invert.
        features: what it should return, one row per example.
        inputs: starting points inside the box.
        box: the range of inputs.
        steps: largest number of Gauss–Newton steps.
        iterations: conjugate-gradient iterations per step.
        tick: called before each step; may raise to stop.
    """
    damping = torch.full((len(inputs),), 1e-6).to(inputs)
    for _ in range(steps):
        tick()
        values, products = jacobian_products(trunk, inputs)
        residual = values - features
        loss = residual.square().sum(dim=1)
        gradient = products[1](residual)
        step = solve_damped(products, gradient, damping, ~box.is_held(inputs, gradient), iterations)
        moved = box.clamp(inputs + step)
        with torch.no_grad():
            new = (trunk(moved) - features).square().sum(dim=1)
        is_better = new < loss
        inputs = torch.where(is_better.reshape(-1, *[1] * (inputs.ndim - 1)), moved, inputs)
        damping = torch.where(is_better, damping / 10, damping * 100).clamp(1e-12, 1e6)
        # At the level of rounding a step no longer helps.
        if not bool((is_better & (new < 0.25 * loss) | ~is_better & (damping < 1e3) & (loss > 0)).any()):
            break
    return inputs


def _dot(left: Tensor, right: Tensor) -> Tensor:
    """Return the inner product per example, in a shape that broadcasts against inputs."""
    return (left * right).flatten(1).sum(dim=1).reshape(-1, *[1] * (left.ndim - 1))
