"""Changes that owners make before they release a network: rounding, quantisation, noise, no optimiser's state.

Every function returns a view with this change; initial weights and integer buffers stay as they are.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from exhume.records import AttackerView

INT8_LEVELS = 127
"""Number of quantisation levels on either side of zero in eight bits."""


def round_weights(view: AttackerView, dtype: torch.dtype) -> AttackerView:
    """Round weights to a shorter floating-point format."""
    return _change_weights(view, lambda weight: weight.to(dtype).to(weight))


def quantise_weights(view: AttackerView) -> AttackerView:
    """Round weights to eight-bit integers, with one scale per tensor."""

    def quantise(weight: Tensor) -> Tensor:
        scale = weight.abs().max().clamp(min=torch.finfo(weight.dtype).tiny) / INT8_LEVELS
        return (weight / scale).round() * scale

    return _change_weights(view, quantise)


def add_noise(view: AttackerView, std: float, generator: torch.Generator) -> AttackerView:
    """Add Gaussian noise of one standard deviation to all weights."""
    return _change_weights(view, lambda weight: weight + std * _draw_like(weight, generator))


def add_relative_noise(view: AttackerView, share: float, generator: torch.Generator) -> AttackerView:
    """Add Gaussian noise whose standard deviation is a share of the root mean square of each tensor."""

    def add(weight: Tensor) -> Tensor:
        size = weight.float().pow(2).mean().sqrt()
        return weight + share * size * _draw_like(weight, generator)

    return _change_weights(view, add)


def drop_optimiser_state(view: AttackerView) -> AttackerView:
    """Release the weights without what the optimiser remembers of its last gradients."""
    return replace(view, optimiser_state=None)


def _draw_like(weight: Tensor, generator: torch.Generator) -> Tensor:
    """Draw on the CPU, so that a seed means the same on every device."""
    return torch.randn(weight.shape, generator=generator).to(weight)


def _change_weights(view: AttackerView, change: Callable[[Tensor], Tensor]) -> AttackerView:
    changed = {
        name: change(weight).to(weight) if weight.is_floating_point() else weight for name, weight in view.final.items()
    }
    return replace(view, final=changed)
