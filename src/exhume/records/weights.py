"""Weights by name, and whether they belong to a model."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from exhume.core.errors import ExhumeError, WeightsError
from exhume.core.text import first_sentence
from exhume.core.weight_files import is_plain
from exhume.models.tangent import Weights as Weights  # re-exported
from exhume.records.record import Record

LARGEST_VALUE = 1e15
"""Absolute value from which on a weight or a gradient is refused: the squares of 10⁸ such values overflow float32."""


def weight_shapes(model: nn.Module) -> dict[str, torch.Size]:
    """Return the shape of every weight and buffer of a model, by name."""
    return {name: tensor.shape for name, tensor in model.state_dict().items()}


def check_weights(weights: Weights, expected: Mapping[str, torch.Size], when: str) -> None:
    """Raise :class:`WeightsError` unless ``weights`` have the expected names and shapes and only finite values."""
    check_shapes(weights, expected, when)
    for name, tensor in weights.items():
        _check_form(tensor, f"The {when} weights hold {name}")
        if tensor.is_floating_point() and not _is_moderate(tensor):
            raise WeightsError(
                f"The {when} weights hold NaN, infinite or enormous values in {name}: the training diverged."
            )


def check_shapes(weights: Weights, expected: Mapping[str, torch.Size], when: str) -> None:
    """Raise :class:`WeightsError` unless ``weights`` have the expected names and shapes."""
    missing, unknown = sorted(expected.keys() - weights.keys()), sorted(weights.keys() - expected.keys())
    if missing or unknown:
        raise WeightsError(
            f"The {when} weights do not belong to this model: "
            f"missing {missing[:3] or 'none'}, unknown {unknown[:3] or 'none'}."
        )
    for name, tensor in weights.items():
        if tensor.shape != expected[name]:
            raise WeightsError(
                f"The {when} weights have {name} of shape {tuple(tensor.shape)}, the model {tuple(expected[name])}."
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class GradientAt(Record):
    """A gradient by parameter name, and the weights at which it was taken."""

    weights: Weights
    gradient: Weights


def check_gradient(gradient: Weights, expected: Mapping[str, torch.Size], what: str) -> None:
    """Raise :class:`WeightsError` unless a gradient belongs to the model and has only finite values.

    Parameters may be absent: frozen ones have no gradient.
    """
    unknown = sorted(gradient.keys() - expected.keys())
    if not gradient or unknown:
        raise WeightsError(
            f"The {what} does not belong to this model: "
            + (f"unknown {unknown[:3]}." if unknown else "it has no parameter.")
        )
    for name, tensor in gradient.items():
        if tensor.shape != expected[name]:
            raise WeightsError(
                f"The {what} has {name} of shape {tuple(tensor.shape)}, the model {tuple(expected[name])}."
            )
        _check_form(tensor, f"The {what} holds {name}")
        if not tensor.is_floating_point() or not _is_moderate(tensor):
            raise WeightsError(f"The {what} holds values in {name} that are not finite numbers of moderate size.")


def _is_moderate(tensor: Tensor) -> bool:
    """Return whether all values are finite, and so small that their squares can be summed in float32."""
    return bool((tensor.abs() < LARGEST_VALUE).all())


def _check_form(tensor: Tensor, what: str) -> None:
    if not is_plain(tensor):
        raise WeightsError(f"{what} in a form other than plain numbers ({tensor.dtype}); give dense float tensors.")


def takes_token_ids(model: nn.Module, input_shape: tuple[int, ...]) -> bool:
    """Return whether a model looks up token ids in an embedding instead of taking real numbers."""
    if not any(isinstance(module, nn.Embedding | nn.EmbeddingBag) for module in model.modules()):
        return False
    weight = next(model.parameters())
    was_training = [module for module in model.modules() if module.training]
    try:
        with torch.no_grad():
            model.eval()(torch.zeros(1, *input_shape, dtype=torch.long, device=weight.device))
    except Exception:  # the owner's code may raise anything
        return False
    finally:
        for module in was_training:
            module.training = True
    return True


def count_outputs(model: nn.Module, input_shape: tuple[int, ...]) -> int:
    """Return the number of outputs of a model per input.

    Raises:
        ExhumeError: when the model has no weights, does not take an input of this shape, takes token ids, or returns
            anything but a tensor.
    """
    weight = next(iter(model.parameters()), None)
    if weight is None:
        raise ExhumeError("The model has no weights.")
    zeros = torch.zeros(1, *input_shape, dtype=weight.dtype, device=weight.device)
    was_training = [module for module in model.modules() if module.training]
    try:
        # In evaluation mode: in training mode batch normalisation refuses a single example and would learn from it.
        with torch.no_grad():
            outputs = model.eval()(zeros)
    except Exception as error:  # the owner's code may raise anything
        if any(isinstance(module, nn.Embedding | nn.EmbeddingBag) for module in model.modules()):
            raise ExhumeError(
                "The model looks up token ids in an embedding; exhume attacks models that take real numbers, such as "
                "pixels or the outputs of the embedding."
            ) from error
        raise ExhumeError(
            f"The model does not take inputs of shape {input_shape} ({first_sentence(error)})."
        ) from error
    finally:
        for module in was_training:
            module.training = True
    if not isinstance(outputs, Tensor):
        raise ExhumeError(
            f"The model returns a {type(outputs).__name__}, in which the outputs are not clear; name them 'logits', or "
            "wrap the model so that it returns the tensor of its outputs alone."
        )
    return outputs.numel()
