"""Fully connected networks of any depth, in the parameterisations the papers use."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from exhume.core.errors import ExhumeError
from exhume.models.architecture import Architecture, choose

if TYPE_CHECKING:
    import torch

Activation = Literal["relu", "leaky-relu", "softplus", "gelu", "silu", "tanh", "sigmoid", "elu", "identity"]
Bias = Literal["all", "first", "none"]
Parameterisation = Literal["standard", "ntk", "small-first-layer", "torch"]


@dataclass(frozen=True, kw_only=True)
class MLP(Architecture):
    """``depth`` hidden layers of ``width`` units, then a linear read-out.

    Parameterisations: ``standard`` draws LeCun-normal weights cut at two deviations and zero biases (Loo et al. 2023);
    ``ntk`` draws unit normals and divides by the square root of the fan-in on use (Jacot et al. 2018);
    ``small-first-layer`` draws the first layer from N(0, 1e-4²) and the rest as PyTorch does (Haim et al. 2022), where
    only the first layer has a bias;
    ``torch`` is what ``nn.Linear`` does by itself.

    >>> import torch
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
        self, input_shape: tuple[int, ...], outputs: int, generator: "torch.Generator | None" = None
    ) -> "torch.nn.Sequential":
        """Build the network; its layers are named ``layer1`` to ``layer{depth+1}``."""
        from exhume.models.building import build_mlp

        return build_mlp(self, input_shape, outputs, generator)
