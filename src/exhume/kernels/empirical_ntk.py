"""The tangent kernel of a network at given weights, and the distance between two kernels."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume.models.dense import dense_products
from exhume.models.tangent import Weights, add_all, jacobians, matching_stack


def empirical_ntk(
    model: nn.Module,
    weights: Weights,
    left: Float[Tensor, "left ..."],
    right: Float[Tensor, "right ..."] | None = None,
) -> Float[Tensor, "left right"]:
    """Return ``Σ_c ∇f_c(x)·∇f_c(x')``, the kernel of the gradients with respect to the weights, summed over outputs.

    Dense stacks have a closed form, ``Σ_l (A_{l−1}A_{l−1}ᵀ + 1) ∘ Σ_c B_l[c]B_l[c]ᵀ`` with the layer inputs ``A``
    and back-propagated signals ``B`` of :func:`~exhume.models.dense.dense_features`; other modules use
    slices of their Jacobian. The kernel between single outputs is :func:`~exhume.models.tangent.kernel_blocks`.

    Args:
        model: any module, in evaluation mode; its own weights are not used.
        weights: the weights at which to take the gradients, by name; the kernel has their precision.
        left: network inputs.
        right: as ``left``, or None for the kernel of ``left`` with itself.

    Returns:
        The kernel, one row per left input.
    """
    stack = matching_stack(model, left)
    if stack is None:
        columns = left if right is None else right
        rows = [
            torch.cat([a.flatten(1) @ b.flatten(1).T for b in jacobians(model, weights, columns)], 1)
            for a in jacobians(model, weights, left)
        ]
        return torch.cat(rows)
    layers = dense_products(stack, weights, left, right)
    return add_all(below * torch.einsum("ciu,cju->ij", b, other) for below, b, other in layers)


def kernel_distance(before: Float[Tensor, "n m"], after: Float[Tensor, "n m"]) -> Float[Tensor, ""]:
    """Return ``1 − ⟨K0, Kf⟩/(‖K0‖‖Kf‖)``: 0 for kernels that differ only by a positive factor, 1 for orthogonal ones.

    >>> kernel_distance(torch.eye(3), 2 * torch.eye(3)).item()
    0.0
    """
    cosine: Tensor = (before * after).sum() / (torch.linalg.norm(before) * torch.linalg.norm(after))
    return 1.0 - cosine
