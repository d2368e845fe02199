"""The tangent space of a network: what its outputs do when its weights move a little.

``J(X)`` stands for the derivatives of the outputs by the weights. It is never held whole: it acts on a change of
weights (:func:`response`), on duals (:func:`change_from`), and its inner products with itself make the tangent kernel
(:func:`kernel_blocks`), in closed form for dense stacks and from slices of Jacobians for any other module.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume.models.dense import dense_products
from exhume.models.structure import DenseStack, dense_stack

Weights = Mapping[str, Tensor]

# How many numbers a slice of a Jacobian may hold: half a gigabyte in float64.
SLICE = 2**26


def split_weights(model: nn.Module, weights: Weights) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Split a state dict into what training moves and what it does not (buffers)."""
    moved = {name for name, parameter in model.named_parameters()}
    return (
        {name: weight.detach() for name, weight in weights.items() if name in moved},
        {name: weight.detach() for name, weight in weights.items() if name not in moved},
    )


def outputs_of(
    model: nn.Module, weights: Weights, inputs: Float[Tensor, "example ..."]
) -> Float[Tensor, "example output"]:
    """Return the outputs of ``model`` carrying ``weights``, one row an example."""
    outputs: Tensor = torch.func.functional_call(model, dict(weights), (inputs,))
    return outputs.reshape(len(inputs), -1)


def response(
    model: nn.Module, weights: Weights, inputs: Float[Tensor, "example ..."], change: Weights
) -> tuple[Float[Tensor, "example output"], Float[Tensor, "example output"]]:
    """Return the outputs at ``weights`` and ``J(X)·change``, by one push forward."""
    moved, fixed = split_weights(model, weights)
    tangents = {name: change[name].to(weight) for name, weight in moved.items()}
    function = _function(model, fixed, inputs)
    pushed = torch.func.jvp(function, (moved,), (tangents,))
    return pushed[0], pushed[1]


def change_from(
    model: nn.Module,
    weights: Weights,
    inputs: Float[Tensor, "example ..."],
    duals: Float[Tensor, "example output"],
) -> dict[str, Tensor]:
    """Return ``J(X)ᵀ·duals``, a change of every trained weight, by one pull back."""
    moved, fixed = split_weights(model, weights)
    pull: Callable[[Tensor], tuple[dict[str, Tensor]]] = torch.func.vjp(_function(model, fixed, inputs), moved)[1]
    return pull(duals)[0]


def kernel_blocks(
    model: nn.Module,
    weights: Weights,
    left: Float[Tensor, "left ..."],
    right: Float[Tensor, "right ..."] | None = None,
) -> Float[Tensor, "left output right output"]:
    """Return the tangent kernel between every output at every left and every output at every right input."""
    stack = stack_for(model, left)
    if stack is not None:
        layers = dense_products(stack, weights, left, right)
        return sum_of(below[:, None, :, None] * torch.einsum("ciu,dju->icjd", b, c) for below, b, c in layers)
    columns = left if right is None else right
    rows = [
        torch.cat([torch.einsum("icp,jdp->icjd", a, b) for b in jacobians(model, weights, columns)], 2)
        for a in jacobians(model, weights, left)
    ]
    return torch.cat(rows)


def sum_of(terms: Iterable[Tensor]) -> Tensor:
    """Add tensors, holding no more than two."""
    return functools.reduce(torch.add, terms)


def stack_for(model: nn.Module, inputs: Float[Tensor, "example ..."]) -> DenseStack | None:
    """Return the dense stack a model is, when it takes inputs of this size whole."""
    stack = dense_stack(model)
    return stack if stack is not None and stack.input_size == inputs[0].numel() else None


def jacobians(
    model: nn.Module, weights: Weights, inputs: Float[Tensor, "example ..."]
) -> Iterator[Float[Tensor, "slice output parameter"]]:
    """Return ``J`` in slices of as many examples as fit in memory, with all weights in one flat row."""
    moved, fixed = split_weights(model, weights)

    def single(parameters: dict[str, Tensor], one: Tensor) -> Tensor:
        return _function(model, fixed, one[None])(parameters)[0]

    outputs = outputs_of(model, weights, inputs[:1]).shape[1]
    size = outputs * sum(weight.numel() for weight in moved.values())
    for some in torch.split(inputs, max(1, SLICE // size)):
        tree = torch.func.vmap(torch.func.jacrev(single), (None, 0))(moved, some)
        yield torch.cat([part.reshape(len(some), outputs, -1) for part in tree.values()], 2)


def _function(model: nn.Module, fixed: Weights, inputs: Tensor) -> Callable[[dict[str, Tensor]], Tensor]:
    return lambda moved: outputs_of(model, {**moved, **fixed}, inputs)
