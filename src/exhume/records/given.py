"""What users give a view: converted where the meaning is clear, refused in one sentence elsewhere."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from exhume.core.errors import ExhumeError, WeightsError
from exhume.records.public_training import PublicTraining
from exhume.records.weights import GradientAt


def require_module(model: Any) -> nn.Module:
    """Return a model that is a PyTorch module.

    Raises:
        ExhumeError: when it is not.
    """
    if not isinstance(model, nn.Module):
        raise ExhumeError(f"The model of a view is a torch.nn.Module, not a {type(model).__name__}.")
    return model


def read_input_shape(shape: Any) -> tuple[int, ...]:
    """Return the shape of one input; a single number is the length of a flat one.

    >>> read_input_shape(784), read_input_shape([1, 28, 28])
    ((784,), (1, 28, 28))

    Raises:
        ExhumeError: when it is neither a positive whole number nor several of them.
    """
    sizes = tuple(shape) if isinstance(shape, Iterable) and not isinstance(shape, str | bytes) else (shape,)
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        raise ExhumeError(f"The shape of an input is whole numbers, such as (1, 28, 28), not {shape!r}.")
    return sizes


def read_offset(offset: Any, input_shape: tuple[int, ...]) -> Tensor | None:
    """Return what is subtracted from an input as a tensor; a plain number is subtracted from every value.

    >>> read_offset(0.5, (1, 28, 28))
    tensor(0.5000)

    Raises:
        ExhumeError: when it is neither a number nor an array of them, or does not fit the shape of an input.
    """
    if offset is None:
        return None
    try:
        tensor = offset if isinstance(offset, Tensor) else torch.as_tensor(offset, dtype=torch.float32)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ExhumeError(
            f"The offset is a number or a tensor that is subtracted from an input, not a {type(offset).__name__}."
        ) from error
    try:
        tensor.expand(1, *input_shape)
    except RuntimeError as error:
        raise ExhumeError(
            f"The offset has shape {tuple(tensor.shape)}, which does not fit inputs of shape {input_shape}."
        ) from error
    return tensor


def check_tensors(weights: Any, what: str) -> None:
    """Raise :class:`WeightsError` unless something is a mapping from names to tensors, as a ``state_dict()`` is."""
    if not isinstance(weights, Mapping):
        hint = "; give its state_dict()" if isinstance(weights, nn.Module) else ""
        raise WeightsError(
            f"The {what} must be a mapping from parameter names to tensors, not a {type(weights).__name__}{hint}."
        )
    for name, tensor in weights.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise WeightsError(
                f"The {what} must map parameter names to tensors, not {name!r} to a {type(tensor).__name__}."
            )


def check_training(training: Any) -> None:
    """Raise :class:`ExhumeError` unless what is known about the training was given as a mapping of facts."""
    if not isinstance(training, PublicTraining):
        raise ExhumeError(
            f"What is known about the training is a mapping of facts by name, not a {type(training).__name__}."
        )


def read_more_gradients(gradients: Any) -> tuple[GradientAt, ...]:
    """Return gradients at other weights as a tuple.

    Raises:
        WeightsError: when some of them are no :class:`GradientAt`.
    """
    every = tuple(gradients) if isinstance(gradients, Iterable) else (gradients,)
    if not all(isinstance(one, GradientAt) for one in every):
        raise WeightsError("Further gradients are GradientAt(weights=…, gradient=…), one for each.")
    return every
