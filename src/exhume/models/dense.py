"""The tangent features of dense stacks in closed form: what each layer hears from below and from above.

With layer inputs ``A`` and back-propagated signals ``B``, the gradient of output ``c`` at example ``j`` by the weight
of layer ``l`` is the outer product ``B_l[c, j] ⊗ A_{l−1}[j]`` (times the layer's scale), and by its bias ``B_l[c, j]``.
Every sum over examples and every inner product of gradients follows from these two by matrix products; no framework
graph needs to be differentiated twice.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from exhume.models.structure import DenseLayer, DenseStack


@dataclass(frozen=True)
class Nonlinearity:
    """An elementwise function and what stands for its derivative; an attack may smooth either."""

    value: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]


def _step(inputs: Tensor) -> Tensor:
    return (inputs > 0).to(inputs.dtype)


def elementwise(function: Callable[[Tensor], Tensor]) -> Nonlinearity:
    """Return an elementwise function with its exact derivative.

    >>> elementwise(nn.Tanh()).slope(torch.zeros(2))
    tensor([1., 1.])
    """
    if isinstance(function, nn.ReLU):
        return Nonlinearity(functional.relu, _step)

    def slope(inputs: Tensor) -> Tensor:
        # Elementwise, so a push of ones through the function is the derivative at every entry.
        tangent: Tensor = torch.func.jvp(function, (inputs,), (torch.ones_like(inputs),))[1]
        return tangent

    return Nonlinearity(function, slope)


def smoothed_relu(sharpness: float) -> Nonlinearity:
    """Return ``log(1 + exp(β z))/β``, which has a second derivative and tends to ReLU as ``β`` grows.

    >>> smoothed_relu(200.0).value(torch.tensor([-1.0, 1.0]))
    tensor([0., 1.])
    """
    return Nonlinearity(
        # Beyond the threshold the function is the identity to within exp(−40), below float64's resolution.
        value=lambda inputs: functional.softplus(inputs, beta=sharpness, threshold=40.0),
        slope=lambda inputs: torch.sigmoid(sharpness * inputs),
    )


def scaled_weight(layer: DenseLayer, weights: Mapping[str, Tensor]) -> Float[Tensor, "units units_below"]:
    """Return the matrix a layer multiplies by, without a copy where there is nothing to scale."""
    weight = weights[layer.weight]
    return weight if layer.weight_scale == 1.0 else weight * layer.weight_scale


def dense_features(
    stack: DenseStack,
    weights: Mapping[str, Tensor],
    inputs: Float[Tensor, "example ..."],
    activation: Nonlinearity | None = None,
) -> tuple[list[Float[Tensor, "example _"]], list[Float[Tensor, "output example _"]]]:
    """Run a dense stack forwards and backwards over a batch.

    Args:
        stack: which weights belong to which layer.
        weights: the weights, by name.
        inputs: what the network takes; flattened here.
        activation: instead of the stack's own.

    Returns:
        The inputs ``A_0 … A_{L−1}`` of the ``L`` layers, and the signals ``B_1 … B_L``: the derivatives of each output
        with respect to each layer's pre-activations. All are differentiable functions of inputs and weights.
    """
    activation = activation or elementwise(stack.apply)
    heard = [inputs.flatten(1)]
    slopes: list[Tensor] = []
    scaled = [scaled_weight(layer, weights) for layer in stack.layers]
    for layer, weight in zip(stack.layers[:-1], scaled, strict=False):
        sums = functional.linear(heard[-1], weight, None if layer.bias is None else weights[layer.bias])
        heard.append(activation.value(sums))
        slopes.append(activation.slope(sums))
    outputs = len(scaled[-1])
    unit = torch.eye(outputs, dtype=heard[0].dtype, device=heard[0].device)
    signals = [unit[:, None, :].expand(outputs, len(inputs), outputs)]
    for weight, slope in zip(reversed(scaled[1:]), reversed(slopes), strict=True):
        signals.append(signals[-1] @ weight * slope)
    return heard, signals[::-1]


def dense_outputs(
    stack: DenseStack, weights: Mapping[str, Tensor], last_inputs: Float[Tensor, "example units"]
) -> Float[Tensor, "example output"]:
    """Return the outputs from what the last layer hears, ``A_{L−1}``."""
    last = stack.layers[-1]
    return functional.linear(
        last_inputs, scaled_weight(last, weights), None if last.bias is None else weights[last.bias]
    )


def dense_products(
    stack: DenseStack,
    weights: Mapping[str, Tensor],
    left: Float[Tensor, "left ..."],
    right: Float[Tensor, "right ..."] | None = None,
) -> Iterator[tuple[Float[Tensor, "left right"], Float[Tensor, "output left _"], Float[Tensor, "output right _"]]]:
    """Yield the factors of the tangent kernel, layer by layer: ``A A'ᵀ + 1`` (the 1 with a bias), ``B`` and ``B'``."""
    heard, signals = dense_features(stack, weights, left)
    others = (heard, signals) if right is None else dense_features(stack, weights, right)
    for layer, a, b, other_a, other_b in zip(stack.layers, heard, signals, *others, strict=True):
        yield layer.weight_scale**2 * (a @ other_a.T) + (layer.bias is not None), b, other_b
