"""The gradients of dense stacks in closed form, from the inputs and the back-propagated signals of each layer.

With layer inputs ``A`` and signals ``B``, the gradient of output ``c`` at example ``j`` with respect to the weight of
layer ``l`` is the outer product ``B_l[c, j] ⊗ A_{l−1}[j]`` (times the layer's scale), and with respect to its bias
``B_l[c, j]``. Sums over examples and inner products of gradients follow by matrix products.
"""

from collections.abc import Iterator, Mapping

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from exhume.models.structure import DenseStack


def dense_features(
    stack: DenseStack, weights: Mapping[str, Tensor], inputs: Float[Tensor, "example ..."]
) -> tuple[list[Float[Tensor, "example _"]], list[Float[Tensor, "output example _"]]]:
    """Run a dense stack forwards and backwards over a batch.

    Args:
        stack: which weights belong to which layer.
        weights: the weights, by name.
        inputs: network inputs; flattened here.

    Returns:
        The inputs ``A_0 … A_{L−1}`` of the ``L`` layers, and the signals ``B_1 … B_L``: the derivatives of each output
        with respect to each layer's pre-activations. Both are differentiable in inputs and weights.
    """
    layer_inputs = [inputs.flatten(1)]
    slopes: list[Tensor] = []
    # No copy where there is nothing to scale.
    matrices = [
        weights[layer.weight] if layer.weight_scale == 1.0 else weights[layer.weight] * layer.weight_scale
        for layer in stack.layers
    ]
    for layer, matrix in zip(stack.layers[:-1], matrices, strict=False):
        sums = functional.linear(layer_inputs[-1], matrix, None if layer.bias is None else weights[layer.bias])
        # The activation is elementwise, so pushing ones through it gives its derivative at every entry.
        pushed: tuple[Tensor, ...] = torch.func.jvp(stack.apply, (sums,), (torch.ones_like(sums),))
        layer_inputs.append(pushed[0])
        slopes.append(pushed[1])
    outputs = len(matrices[-1])
    unit = torch.eye(outputs, dtype=layer_inputs[0].dtype, device=layer_inputs[0].device)
    signals = [unit[:, None, :].expand(outputs, len(inputs), outputs)]
    for matrix, slope in zip(reversed(matrices[1:]), reversed(slopes), strict=True):
        signals.append(signals[-1] @ matrix * slope)
    return layer_inputs, signals[::-1]


def dense_products(
    stack: DenseStack,
    weights: Mapping[str, Tensor],
    left: Float[Tensor, "left ..."],
    right: Float[Tensor, "right ..."] | None = None,
) -> Iterator[tuple[Float[Tensor, "left right"], Float[Tensor, "output left _"], Float[Tensor, "output right _"]]]:
    """Yield the factors of the tangent kernel per layer: ``A A'ᵀ + 1`` (the 1 with a bias), ``B`` and ``B'``."""
    layer_inputs, signals = dense_features(stack, weights, left)
    others = (layer_inputs, signals) if right is None else dense_features(stack, weights, right)
    for layer, a, b, other_a, other_b in zip(stack.layers, layer_inputs, signals, *others, strict=True):
        yield layer.weight_scale**2 * (a @ other_a.T) + (layer.bias is not None), b, other_b
