"""Homogeneity: whether a network's outputs scale with a power of its weights."""

import torch

from exhume.models.structure import dense_stack
from exhume.records import AttackerView

PROBES = 8
"""Number of random inputs at which outputs are compared."""


def degree_of_homogeneity(view: AttackerView) -> int | None:
    """Return the ``L`` of ``f(cθ; x) = c^L·f(θ; x)`` for ``c > 0``, measured at random inputs; None where none fits."""
    generator = torch.Generator().manual_seed(0)
    probes = torch.randn(PROBES, *view.input_shape, generator=generator, dtype=torch.float64).to(view.device)
    outputs = []
    for factor in (1.0, 2.0, 4.0):
        weights = {
            name: factor * weight.double() if weight.is_floating_point() else weight
            for name, weight in view.final.items()
        }
        with torch.no_grad():
            outputs.append(view.module(weights)(probes).flatten())
    plain, double, fourfold = outputs
    size = plain.norm()
    if not bool(size > 0):
        return None
    degree = int(torch.log2(double.norm() / size).round())
    fits = all(
        torch.allclose(scaled, factor**degree * plain, rtol=1e-6, atol=1e-9 * factor**degree * float(size))
        for scaled, factor in ((double, 2.0), (fourfold, 4.0))
    )
    return degree if fits and degree > 0 else None


def reason_for_inhomogeneity(view: AttackerView) -> str:
    """Return what keeps a network from being homogeneous, as far as its structure shows."""
    stack = dense_stack(view.model)
    if stack is None:
        return "this one has biases above its first layer, a normalisation, or a curved activation"
    if stack.activation not in ("relu", "leakyrelu", "identity", None):
        return f"its activation {stack.activation} is not piecewise linear through zero"
    biased = [layer.weight.rpartition(".")[0] for layer in stack.layers[1:] if layer.bias is not None]
    return f"layer {biased[0]!r} has a bias" if biased else "its outputs do not scale with its weights"
