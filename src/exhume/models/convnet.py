"""A small convolutional network for pictures from 8×8 up."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import get_args

import torch
from torch import nn

from exhume.core.errors import ExhumeError
from exhume.models.architecture import Architecture, choose
from exhume.models.initialisation import lecun_normal_
from exhume.models.mlp import ACTIVATIONS, Activation


@dataclass(frozen=True, kw_only=True)
class ConvNet(Architecture):
    """``depth`` blocks of a 3×3 convolution, an activation and 2×2 average pooling, then a linear read-out.

    Weights are LeCun-normal and biases zero, as in the standard :class:`~exhume.models.mlp.MLP`. There is no batch
    normalisation, so that every output depends on its own input alone.

    >>> ConvNet(channels=4).build((3, 32, 32), 10)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    channels: int = 32
    depth: int = 2
    activation: Activation = "relu"
    bias: bool = True

    def __post_init__(self) -> None:
        if self.channels < 1 or self.depth < 1:
            raise ExhumeError(
                f"A ConvNet needs at least one channel and one block, not {self.channels} and {self.depth}."
            )
        choose("activation", self.activation, get_args(Activation))

    def build(
        self, input_shape: tuple[int, ...], outputs: int, generator: torch.Generator | None = None
    ) -> nn.Sequential:
        """Build the network; its layers are named ``convolution1`` … ``convolution{depth}`` and ``readout``."""
        if len(input_shape) != 3:
            raise ExhumeError(f"A ConvNet takes pictures (channels, height, width), not inputs of shape {input_shape}.")
        below, height, width = input_shape
        if min(height, width) < 2**self.depth:
            raise ExhumeError(f"Pictures of {height}×{width} are too small for {self.depth} halvings; lower the depth.")
        parts: OrderedDict[str, nn.Module] = OrderedDict()
        for index in range(1, self.depth + 1):
            convolution = nn.Conv2d(below, self.channels, 3, padding=1, bias=self.bias)
            _initialise(convolution, 9 * below, generator)
            parts[f"convolution{index}"] = convolution
            parts[f"activation{index}"] = ACTIVATIONS[self.activation]()
            parts[f"pool{index}"] = nn.AvgPool2d(2)
            below, height, width = self.channels, height // 2, width // 2
        parts["flatten"] = nn.Flatten()
        readout = nn.Linear(below * height * width, outputs, bias=self.bias)
        _initialise(readout, below * height * width, generator)
        parts["readout"] = readout
        return nn.Sequential(parts)


def _initialise(layer: nn.Conv2d | nn.Linear, fan_in: int, generator: torch.Generator | None) -> None:
    lecun_normal_(layer.weight, fan_in, generator)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
