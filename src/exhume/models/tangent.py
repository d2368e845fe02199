"""The tangent space of a network: how its outputs change when its weights change a little.

``J(X)`` stands for the derivatives of the outputs with respect to the weights. It is never held whole: it is multiplied
with a weight change (:func:`jacobian_vector_product`) or with duals (:func:`vector_jacobian_product`), and its inner
products with itself make the tangent kernel (:func:`kernel_blocks`), in closed form for dense stacks and from slices of
Jacobians for any other module.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume.models.dense import dense_products
from exhume.models.structure import DenseStack, dense_stack

Weights = Mapping[str, Tensor]
"""Tensors by name, as ``state_dict`` returns them."""

SLICE = 2**26
"""Most numbers in one slice of a Jacobian: half a gigabyte in float64."""


def split_weights(model: nn.Module, weights: Weights) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Split a state dict into parameters, which training changes, and buffers, which it does not."""
    names = {name for name, _ in model.named_parameters()}
    return (
        {name: weight.detach() for name, weight in weights.items() if name in names},
        {name: weight.detach() for name, weight in weights.items() if name not in names},
    )


def widen(weights: Weights) -> dict[str, Tensor]:
    """Return weights in the type to compute with: the widest floating-point type among them, and at least float32.

    Files often mix types, such as bfloat16 layers with float32 normalisation, which PyTorch does not multiply.

    >>> widen({"a": torch.ones(1, dtype=torch.bfloat16), "b": torch.ones(1)})["a"].dtype
    torch.float32
    """
    types = [weight.dtype for weight in weights.values() if weight.is_floating_point()]
    widest = functools.reduce(torch.promote_types, types, torch.float32)
    return {name: weight.to(widest) if weight.is_floating_point() else weight for name, weight in weights.items()}


def compute_outputs(
    model: nn.Module, weights: Weights, inputs: Float[Tensor, "example ..."]
) -> Float[Tensor, "example output"]:
    """Return the outputs of ``model`` with ``weights``, one row per example."""
    outputs: Tensor = torch.func.functional_call(model, dict(weights), (inputs,))
    return outputs.reshape(len(inputs), -1)


def jacobian_vector_product(
    model: nn.Module, weights: Weights, inputs: Float[Tensor, "example ..."], change: Weights
) -> tuple[Float[Tensor, "example output"], Float[Tensor, "example output"]]:
    """Return the outputs at ``weights``, and ``J(X)·change``."""
    parameters, buffers = split_weights(model, weights)
    tangents = {name: change[name].to(weight) for name, weight in parameters.items()}
    pushed = torch.func.jvp(_function(model, buffers, inputs), (parameters,), (tangents,))
    return pushed[0], pushed[1]


def vector_jacobian_product(
    model: nn.Module,
    weights: Weights,
    inputs: Float[Tensor, "example ..."],
    duals: Float[Tensor, "example output"],
) -> dict[str, Tensor]:
    """Return ``J(X)ᵀ·duals``, a change of every parameter."""
    parameters, buffers = split_weights(model, weights)
    function = _function(model, buffers, inputs)
    pull_back: Callable[[Tensor], tuple[dict[str, Tensor]]] = torch.func.vjp(function, parameters)[1]
    return pull_back(duals)[0]


def kernel_blocks(
    model: nn.Module,
    weights: Weights,
    left: Float[Tensor, "left ..."],
    right: Float[Tensor, "right ..."] | None = None,
) -> Float[Tensor, "left output right output"]:
    """Return the tangent kernel between every output at every left input and every output at every right input."""
    stack = matching_stack(model, left)
    if stack is not None:
        layers = dense_products(stack, weights, left, right)
        return add_all(below[:, None, :, None] * torch.einsum("ciu,dju->icjd", b, c) for below, b, c in layers)
    columns = left if right is None else right
    rows = [
        torch.cat([torch.einsum("icp,jdp->icjd", a, b) for b in jacobians(model, weights, columns)], 2)
        for a in jacobians(model, weights, left)
    ]
    return torch.cat(rows)


def add_all(terms: Iterable[Tensor]) -> Tensor:
    """Add tensors of an iterator, with at most two of them in memory."""
    return functools.reduce(torch.add, terms)


def matching_stack(model: nn.Module, inputs: Float[Tensor, "example ..."]) -> DenseStack | None:
    """Return the model's dense stack, if it is one and takes whole inputs of this size."""
    stack = dense_stack(model)
    return stack if stack is not None and stack.input_size == inputs[0].numel() else None


def jacobians(
    model: nn.Module, weights: Weights, inputs: Float[Tensor, "example ..."]
) -> Iterator[Float[Tensor, "slice output parameter"]]:
    """Yield ``J`` in slices of as many examples as fit in memory, with all parameters in one flat row."""
    parameters, buffers = split_weights(model, weights)

    def single(moved: dict[str, Tensor], one: Tensor) -> Tensor:
        return _function(model, buffers, one[None])(moved)[0]

    outputs = compute_outputs(model, weights, inputs[:1]).shape[1]
    size = outputs * sum(weight.numel() for weight in parameters.values())
    for some in torch.split(inputs, max(1, SLICE // size)):
        tree = torch.func.vmap(torch.func.jacrev(single), (None, 0))(parameters, some)
        yield torch.cat([part.reshape(len(some), outputs, -1) for part in tree.values()], 2)


def _function(model: nn.Module, buffers: Weights, inputs: Tensor) -> Callable[[dict[str, Tensor]], Tensor]:
    return lambda parameters: compute_outputs(model, {**parameters, **buffers}, inputs)
