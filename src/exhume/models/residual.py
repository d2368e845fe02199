"""Residual blocks, and the networks made of them."""

import math
from collections import OrderedDict

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume.core.errors import ExhumeError
from exhume.models.initialisation import lecun_normal_
from exhume.models.resnet import ResNet


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions with batch normalisation, added to the input and followed by a ReLU.

    Where the shape changes, a 1×1 convolution with batch normalisation brings the input into the new shape.
    """

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        self.convolution1 = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.normalisation1 = nn.BatchNorm2d(channels)
        self.convolution2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.normalisation2 = nn.BatchNorm2d(channels)
        self.activation = nn.ReLU()
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != channels:
            projection = nn.Conv2d(inputs, channels, 1, stride, bias=False)
            self.shortcut = nn.Sequential(OrderedDict(convolution=projection, normalisation=nn.BatchNorm2d(channels)))

    def forward(self, inputs: Float[Tensor, "example channel row column"]) -> Tensor:
        """Return the block's output."""
        inside = self.activation(self.normalisation1(self.convolution1(inputs)))
        added: Tensor = self.normalisation2(self.convolution2(inside)) + self.shortcut(inputs)
        return self.activation(added)  # type: ignore[no-any-return]


def build_resnet(
    settings: ResNet, input_shape: tuple[int, ...], outputs: int, generator: torch.Generator | None
) -> nn.Sequential:
    """Build a residual network; convolutions are He-normal, the readout is LeCun-normal with zero biases.

    Raises:
        ExhumeError: when inputs are no images, or too small for the number of stages.
    """
    if len(input_shape) != 3:
        raise ExhumeError(f"A ResNet takes images (channels, height, width), not inputs of shape {input_shape}.")
    halvings = len(settings.blocks) - 1
    if min(input_shape[1:]) < 2**halvings:
        height, width = input_shape[1:]
        raise ExhumeError(
            f"Images of {height}×{width} pixels are too small to halve {halvings} times; use fewer stages."
        )
    below = settings.channels
    parts: OrderedDict[str, nn.Module] = OrderedDict(
        stem=nn.Conv2d(input_shape[0], below, 3, padding=1, bias=False),
        normalisation=nn.BatchNorm2d(below),
        activation=nn.ReLU(),
    )
    for stage, blocks in enumerate(settings.blocks):
        channels = settings.channels * 2**stage
        inside: OrderedDict[str, nn.Module] = OrderedDict()
        for block in range(blocks):
            inside[f"block{block + 1}"] = ResidualBlock(below, channels, 2 if block == 0 and stage > 0 else 1)
            below = channels
        parts[f"stage{stage + 1}"] = nn.Sequential(inside)
    parts |= OrderedDict(pool=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten(), readout=nn.Linear(below, outputs))
    network = nn.Sequential(parts)
    _initialise(network, generator)
    return network


def _initialise(network: nn.Module, generator: torch.Generator | None) -> None:
    """Draw all weights; those of batch normalisation are ones and zeros already."""
    with torch.no_grad():
        for layer in network.modules():
            if isinstance(layer, nn.Conv2d):
                fan_in = layer.weight[0].numel()
                layer.weight.normal_(0.0, math.sqrt(2.0 / fan_in), generator=generator)
            elif isinstance(layer, nn.Linear):
                lecun_normal_(layer.weight, layer.in_features, generator)
                layer.bias.zero_()
