"""Build the modules that architecture settings describe."""

import itertools
import math
from collections import OrderedDict

import torch
from torch import Tensor, nn

from exhume.core.errors import ExhumeError
from exhume.models.activations import ACTIVATIONS
from exhume.models.convnet import ConvNet
from exhume.models.initialisation import lecun_normal_, torch_uniform_
from exhume.models.mlp import MLP


class ScaledLinear(nn.Linear):
    """A linear layer that multiplies its weight by ``weight_scale`` on use: the NTK parameterisation."""

    def __init__(self, in_features: int, out_features: int, bias: bool, weight_scale: float) -> None:
        super().__init__(in_features, out_features, bias=bias)
        self.weight_scale = weight_scale

    def forward(self, input: Tensor) -> Tensor:
        """Apply the scaled layer."""
        return nn.functional.linear(input, self.weight * self.weight_scale, self.bias)


def build_mlp(
    settings: MLP, input_shape: tuple[int, ...], outputs: int, generator: torch.Generator | None
) -> nn.Sequential:
    """Build a fully connected network; its layers are named ``layer1`` to ``layer{depth+1}``."""
    sizes = [math.prod(input_shape)] + [settings.width] * settings.depth + [outputs]
    parts: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    for index, (inputs, units) in enumerate(itertools.pairwise(sizes), start=1):
        has_bias = settings.bias == "all" or (settings.bias == "first" and index == 1)
        parts[f"layer{index}"] = _dense_layer(settings, index, inputs, units, has_bias, generator)
        if index <= settings.depth:
            parts[f"activation{index}"] = ACTIVATIONS[settings.activation]()
    return nn.Sequential(parts)


def _dense_layer(
    settings: MLP, index: int, inputs: int, units: int, bias: bool, generator: torch.Generator | None
) -> nn.Linear:
    """Return one layer with its weights drawn as the parameterisation says."""
    ntk = settings.parameterisation == "ntk"
    layer = ScaledLinear(inputs, units, bias, inputs**-0.5) if ntk else nn.Linear(inputs, units, bias=bias)
    with torch.no_grad():
        if settings.parameterisation == "standard":
            lecun_normal_(layer.weight, inputs, generator)
        elif ntk:
            layer.weight.normal_(generator=generator)
        elif settings.parameterisation == "small-first-layer" and index == 1:
            layer.weight.normal_(0.0, 1e-4, generator=generator)
        else:
            torch_uniform_(layer.weight, inputs, generator)
        if not bias:
            return layer
        if settings.parameterisation in ("standard", "ntk"):
            layer.bias.zero_()
        elif settings.parameterisation == "small-first-layer" and index == 1:
            layer.bias.normal_(0.0, 1e-4, generator=generator)
        else:
            torch_uniform_(layer.bias, inputs, generator)
    return layer


def build_convnet(
    settings: ConvNet, input_shape: tuple[int, ...], outputs: int, generator: torch.Generator | None
) -> nn.Sequential:
    """Build a convolutional network; its layers are named ``convolution1`` … ``convolution{depth}`` and ``readout``.

    Raises:
        ExhumeError: when inputs are no images, or too small for the depth.
    """
    if len(input_shape) != 3:
        raise ExhumeError(f"A ConvNet takes images (channels, height, width), not inputs of shape {input_shape}.")
    below, height, width = input_shape
    if min(height, width) < 2**settings.depth:
        raise ExhumeError(
            f"Images of {height}×{width} pixels are too small to halve {settings.depth} times; lower the depth."
        )
    parts: OrderedDict[str, nn.Module] = OrderedDict()
    for index in range(1, settings.depth + 1):
        convolution = nn.Conv2d(below, settings.channels, 3, padding=1, bias=settings.bias)
        _initialise(convolution, 9 * below, generator)
        parts[f"convolution{index}"] = convolution
        parts[f"activation{index}"] = ACTIVATIONS[settings.activation]()
        parts[f"pool{index}"] = nn.AvgPool2d(2)
        below, height, width = settings.channels, height // 2, width // 2
    parts["flatten"] = nn.Flatten()
    features = below * height * width
    if settings.hidden:
        hidden = nn.Linear(features, settings.hidden, bias=settings.bias)
        _initialise(hidden, features, generator)
        parts["hidden"] = hidden
        parts["activation"] = ACTIVATIONS[settings.activation]()
        features = settings.hidden
    readout = nn.Linear(features, outputs, bias=settings.bias)
    _initialise(readout, features, generator)
    parts["readout"] = readout
    return nn.Sequential(parts)


def _initialise(layer: nn.Conv2d | nn.Linear, fan_in: int, generator: torch.Generator | None) -> None:
    lecun_normal_(layer.weight, fan_in, generator)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
