"""Fully connected networks of any depth, in the parameterisations the papers use."""

import itertools
import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from exhume.core.errors import ExhumeError
from exhume.models.architecture import Architecture, choose
from exhume.models.initialisation import lecun_normal_, torch_uniform_

Activation = Literal["relu", "leaky-relu", "softplus", "gelu", "silu", "tanh", "sigmoid", "elu", "identity"]
Bias = Literal["all", "first", "none"]
Parameterisation = Literal["standard", "ntk", "small-first-layer", "torch"]

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "leaky-relu": nn.LeakyReLU,
    "softplus": nn.Softplus,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "elu": nn.ELU,
    "identity": nn.Identity,
}


class ScaledLinear(nn.Linear):
    """A linear layer whose weight is multiplied by ``weight_scale`` on use: the NTK parameterisation."""

    def __init__(self, in_features: int, out_features: int, bias: bool, weight_scale: float) -> None:
        super().__init__(in_features, out_features, bias=bias)
        self.weight_scale = weight_scale

    def forward(self, input: Tensor) -> Tensor:
        """Apply the scaled layer."""
        return nn.functional.linear(input, self.weight * self.weight_scale, self.bias)


@dataclass(frozen=True, kw_only=True)
class MLP(Architecture):
    """``depth`` hidden layers of ``width`` units, then a linear read-out.

    Parameterisations: ``standard`` draws LeCun-normal weights cut at two deviations and zero biases (Loo et al. 2023);
    ``ntk`` draws unit normals and divides by the square root of the fan-in on use (Jacot et al. 2018);
    ``small-first-layer`` draws the first layer from N(0, 1e-4²) and the rest as PyTorch does (Haim et al. 2022), where
    only the first layer has a bias;
    ``torch`` is what ``nn.Linear`` does by itself.

    >>> MLP(width=8, depth=1).build((1, 4, 4), 1)(torch.zeros(3, 1, 4, 4)).shape
    torch.Size([3, 1])
    """

    width: int = 1024
    depth: int = 2
    activation: Activation = "relu"
    bias: Bias = "all"
    parameterisation: Parameterisation = "standard"

    def __post_init__(self) -> None:
        if self.width < 1 or self.depth < 0:
            raise ExhumeError(f"An MLP needs a positive width and depth 0 or more, not {self.width} and {self.depth}.")
        for name, kind in (("activation", Activation), ("bias", Bias), ("parameterisation", Parameterisation)):
            choose(name, getattr(self, name), get_args(kind))

    def build(
        self, input_shape: tuple[int, ...], outputs: int, generator: torch.Generator | None = None
    ) -> nn.Sequential:
        """Build the network; its layers are named ``layer1`` to ``layer{depth+1}``."""
        sizes = [math.prod(input_shape)] + [self.width] * self.depth + [outputs]
        parts: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
        for index, (inputs, units) in enumerate(itertools.pairwise(sizes), start=1):
            has_bias = self.bias == "all" or (self.bias == "first" and index == 1)
            parts[f"layer{index}"] = self._layer(index, inputs, units, has_bias, generator)
            if index <= self.depth:
                parts[f"activation{index}"] = ACTIVATIONS[self.activation]()
        return nn.Sequential(parts)

    def _layer(self, index: int, inputs: int, units: int, bias: bool, generator: torch.Generator | None) -> nn.Linear:
        ntk = self.parameterisation == "ntk"
        layer = ScaledLinear(inputs, units, bias, inputs**-0.5) if ntk else nn.Linear(inputs, units, bias=bias)
        with torch.no_grad():
            if self.parameterisation == "standard":
                lecun_normal_(layer.weight, inputs, generator)
            elif ntk:
                layer.weight.normal_(generator=generator)
            elif self.parameterisation == "small-first-layer" and index == 1:
                layer.weight.normal_(0.0, 1e-4, generator=generator)
            else:
                torch_uniform_(layer.weight, inputs, generator)
            if not bias:
                return layer
            if self.parameterisation in ("standard", "ntk"):
                layer.bias.zero_()
            elif self.parameterisation == "small-first-layer" and index == 1:
                layer.bias.normal_(0.0, 1e-4, generator=generator)
            else:
                torch_uniform_(layer.bias, inputs, generator)
        return layer
