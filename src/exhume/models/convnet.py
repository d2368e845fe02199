"""A small convolutional network for pictures from 8×8 up."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from exhume.core.errors import ExhumeError
from exhume.models.architecture import Architecture, choose
from exhume.models.mlp import Activation

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class ConvNet(Architecture):
    """``depth`` blocks of a 3×3 convolution, an activation and 2×2 average pooling, then a linear read-out.

    Weights are LeCun-normal and biases zero, as in the standard :class:`~exhume.models.mlp.MLP`. There is no batch
    normalisation, so that every output depends on its own input alone.

    >>> import torch
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
        self, input_shape: tuple[int, ...], outputs: int, generator: "torch.Generator | None" = None
    ) -> "torch.nn.Sequential":
        """Build the network; its layers are named ``convolution1`` … ``convolution{depth}`` and ``readout``."""
        from exhume.models.building import build_convnet

        return build_convnet(self, input_shape, outputs, generator)
