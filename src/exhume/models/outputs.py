"""Models that return more than a tensor: a dictionary, a tuple, or an object with logits."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

NAMES = ("logits", "outputs", "output", "out", "prediction", "predictions")
"""Names under which models return the outputs that their loss is computed from, the likeliest first."""


def take_tensor(returned: object) -> Tensor | None:
    """Return the tensor of outputs in what a model returned; None where it is not clear which one that is.

    >>> take_tensor({"logits": torch.ones(2), "features": torch.zeros(3)})
    tensor([1., 1.])
    """
    if isinstance(returned, Tensor):
        return returned
    if isinstance(returned, Mapping):
        named: dict[Any, Any] = dict(returned)
    elif isinstance(returned, tuple | list) and not hasattr(returned, "_fields"):
        named = dict(enumerate(returned))
    else:
        named = {name: getattr(returned, name) for name in NAMES if hasattr(returned, name)}
    tensors = {name: value for name, value in named.items() if isinstance(value, Tensor)}
    for name in NAMES:
        if name in tensors:
            return tensors[name]
    return next(iter(tensors.values())) if len(tensors) == 1 else None


def with_tensor_output(model: nn.Module, input_shape: tuple[int, ...]) -> nn.Module:
    """Return a model that returns a tensor: the model itself where it does, else a copy that takes it out.

    A model that cannot be called, or whose outputs are not clear, is returned as it is.
    """
    weight = next(iter(model.parameters()), None)
    if weight is None:
        return model
    zeros = torch.zeros(1, *input_shape, dtype=weight.dtype, device=weight.device)
    was_training = [module for module in model.modules() if module.training]
    try:
        with torch.no_grad():
            returned = model.eval()(zeros)
    except Exception:  # the owner's code may raise anything
        return model
    finally:
        for module in was_training:
            module.training = True
    if isinstance(returned, Tensor) or take_tensor(returned) is None:
        return model
    wrapped = copy.deepcopy(model)  # the owner's module must go on returning what it returned
    wrapped.register_forward_hook(_take_output)
    return wrapped


def keep_output(model: nn.Module, traced: nn.Module) -> nn.Module:
    """Return a traced copy of a model that takes out the tensor if the model does; tracing loses hooks."""
    if _take_output in model._forward_hooks.values():
        traced.register_forward_hook(_take_output)
    return traced


def _take_output(_: nn.Module, __: object, returned: object) -> Tensor | None:
    return take_tensor(returned)
