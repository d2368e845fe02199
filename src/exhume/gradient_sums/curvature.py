"""The lowest curvature of a function along each of many points, from its gradients alone (Lanczos)."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

Points = Float[Tensor, "*batch value"]
GradientField = Callable[[Tensor], Tensor]
"""Map points to the gradient at each, which depends on that point alone."""

ITERATIONS = 12
"""Products with the Hessian per search. The lowest curvature of a spectrum with a few outliers needs no more."""
EXHAUSTED = 1e-6
"""Norm of what is left of a product outside the directions tried so far, relative to the product, that is rounding."""


def lowest_curvature(
    gradient: GradientField,
    at: Points,
    *,
    distance: float,
    generator: torch.Generator,
    iterations: int = ITERATIONS,
) -> tuple[Points, Float[Tensor, "*batch"]]:
    """Return, per point, a unit vector of nearly the lowest curvature, and the curvature along it.

    A product ``Hv`` with the Hessian is the central difference of gradients at ``x ± distance·v``. A network with sharp
    gates needs this: its Hessian sees only the gates within ``1/β``, and the difference all gates up to ``distance``.

    Args:
        gradient: the gradients of the function, one per point.
        at: the points.
        distance: over which curvature is measured.
        generator: draws the first direction, the same for all batches but the last dimension of points, on the CPU.
        iterations: products with the Hessian.
    """
    start = torch.randn(at.shape[-2:], generator=generator, dtype=torch.float64).to(at).expand(at.shape)
    direction = start / start.norm(dim=-1, keepdim=True)
    tried: list[Tensor] = []
    products: list[Tensor] = []
    for _ in range(min(iterations, at.shape[-1])):
        product = (gradient(at + distance * direction) - gradient(at - distance * direction)) / (2 * distance)
        tried.append(direction)
        products.append(product)
        rest = product
        for _ in range(2):  # once leaves rounding errors that grow from product to product
            for other in tried:
                rest = rest - (rest * other).sum(-1, keepdim=True) * other
        norm = rest.norm(dim=-1, keepdim=True)
        is_new = norm > EXHAUSTED * product.norm(dim=-1, keepdim=True)
        direction = torch.where(is_new, rest / norm, 0.0)  # a zero adds curvature zero, which lowers nothing
    basis, images = torch.stack(tried, -2), torch.stack(products, -2)
    small = basis @ images.mT
    is_finite = small.isfinite().all(-1).all(-1)
    values, vectors = torch.linalg.eigh(torch.where(is_finite[..., None, None], (small + small.mT) / 2, 0.0))
    directions = (vectors[..., :1].mT @ basis)[..., 0, :]
    return directions.nan_to_num(0.0), torch.where(is_finite, values[..., 0], torch.inf)
