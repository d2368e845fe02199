"""Changes that owners make to weights before they release them: noise, rounding, quantisation."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from exhume.records import AttackerView


def add_noise(view: AttackerView, std: float, seed: int) -> AttackerView:
    """Add Gaussian noise to every released weight."""
    generator = torch.Generator().manual_seed(seed)
    return replace(
        view,
        final={name: w + std * torch.randn(w.shape, generator=generator).to(w) for name, w in view.final.items()},
    )


def round_weights(view: AttackerView, dtype: torch.dtype) -> AttackerView:
    """Round released weights to a shorter floating-point format."""
    return replace(view, final={name: weight.to(dtype).to(weight) for name, weight in view.final.items()})


def quantise(view: AttackerView, levels: int = 127) -> AttackerView:
    """Round weights to integers from -``levels`` to ``levels``, with one scale per tensor (int8: 127)."""
    return replace(view, final=_quantise(view.final, levels))


def _quantise(weights: Mapping[str, Tensor], levels: int) -> dict[str, Tensor]:
    scales = {name: weight.abs().max().clamp(min=1e-30) / levels for name, weight in weights.items()}
    return {name: (weight / scales[name]).round() * scales[name] for name, weight in weights.items()}
