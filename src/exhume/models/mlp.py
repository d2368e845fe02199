"""Fully connected networks of any depth, in the parameterisations that the papers use."""

from typing import TYPE_CHECKING, Literal

from pydantic import NonNegativeInt, PositiveInt

from exhume.core.settings import settings
from exhume.models.architecture import Architecture

if TYPE_CHECKING:
    import torch

Activation = Literal["relu", "leaky-relu", "softplus", "gelu", "silu", "tanh", "sigmoid", "elu", "identity"]
Bias = Literal["all", "first", "none"]
Parameterisation = Literal["standard", "ntk", "small-first-layer", "torch"]


@settings
class MLP(Architecture):
    """``depth`` hidden layers of ``width`` units, then a linear output layer.

    Parameterisations: ``standard`` draws LeCun-normal weights, truncated at two standard deviations, and zero biases
    (Loo et al. 2023); ``ntk`` draws standard normals and divides by the square root of the fan-in on use (Jacot et al.
    2018); ``small-first-layer`` draws the first layer from N(0, 1e-4²) and the rest as PyTorch does (Haim et al. 2022,
    who give only the first layer a bias); ``torch`` draws what ``nn.Linear`` draws.

    >>> import torch
    >>> MLP(width=8, depth=1).build((1, 4, 4), 1)(torch.zeros(3, 1, 4, 4)).shape
    torch.Size([3, 1])
    """

    width: PositiveInt = 1024
    """Units per hidden layer of an MLP."""
    depth: NonNegativeInt = 2
    """Number of hidden layers."""
    activation: Activation = "relu"
    """Activation function between layers."""
    bias: Bias = "all"
    """Layers that have a bias."""
    parameterisation: Parameterisation = "standard"
    """How the weights of an MLP are drawn and scaled."""

    def build(
        self, input_shape: tuple[int, ...], outputs: int, generator: "torch.Generator | None" = None
    ) -> "torch.nn.Sequential":
        """Build the network; its layers are named ``layer1`` to ``layer{depth+1}``."""
        from exhume.models.building import build_mlp

        return build_mlp(self, input_shape, outputs, generator)
