"""How fresh weights are drawn, always from a generator that the caller holds."""

import torch
from torch import Tensor, nn

# The standard deviation of a unit normal cut at two deviations; dividing by it restores the intended variance.
TRUNCATED_STD = 0.87962566103423978


def lecun_normal_(weight: Tensor, fan_in: int, generator: torch.Generator | None) -> None:
    """Draw normals of variance ``1/fan_in``, cut at two deviations and rescaled, in place."""
    with torch.no_grad():
        nn.init.trunc_normal_(weight, 0.0, 1.0, -2.0, 2.0, generator=generator)
        weight.mul_(fan_in**-0.5 / TRUNCATED_STD)


def torch_uniform_(tensor: Tensor, fan_in: int, generator: torch.Generator | None) -> None:
    """Draw what PyTorch's layers draw by themselves for weights and biases alike, in place."""
    with torch.no_grad():
        tensor.uniform_(-(fan_in**-0.5), fan_in**-0.5, generator=generator)
