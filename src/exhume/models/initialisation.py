"""How initial weights are drawn, always from a generator that the caller holds."""

import torch
from torch import Tensor, nn

TRUNCATED_STD = 0.87962566103423978
"""Standard deviation of a standard normal truncated at ±2; dividing by it restores the intended variance."""


def lecun_normal_(weight: Tensor, fan_in: int, generator: torch.Generator | None) -> None:
    """Fill ``weight`` with normals of variance ``1/fan_in``, truncated at two standard deviations."""
    with torch.no_grad():
        nn.init.trunc_normal_(weight, 0.0, 1.0, -2.0, 2.0, generator=generator)
        weight.mul_(fan_in**-0.5 / TRUNCATED_STD)


def torch_uniform_(tensor: Tensor, fan_in: int, generator: torch.Generator | None) -> None:
    """Fill ``tensor`` as PyTorch's layers initialise their weights and biases: uniform in ±``fan_in**-0.5``."""
    with torch.no_grad():
        tensor.uniform_(-(fan_in**-0.5), fan_in**-0.5, generator=generator)
