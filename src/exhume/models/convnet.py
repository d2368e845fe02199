"""A small convolutional network for images of 8×8 pixels or more."""

from typing import TYPE_CHECKING

from pydantic import NonNegativeInt, PositiveInt

from exhume.core.settings import settings
from exhume.models.architecture import Architecture
from exhume.models.mlp import Activation

if TYPE_CHECKING:
    import torch


@settings
class ConvNet(Architecture):
    """``depth`` blocks of a 3×3 convolution, an activation and 2×2 average pooling, then a linear output layer.

    With ``hidden`` units, a dense layer of this size and an activation lie before the output layer.

    Weights are LeCun-normal and biases zero, as in the standard :class:`~exhume.models.mlp.MLP`. There is no batch
    normalisation, so an output depends on its own input only.

    >>> import torch
    >>> ConvNet(channels=4).build((3, 32, 32), 10)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    channels: PositiveInt = 32
    """Channels per layer of a ConvNet."""
    depth: PositiveInt = 2
    hidden: NonNegativeInt = 0
    """Units of a dense layer with the activation between convolutions and output of a ConvNet; 0: no such layer."""
    activation: Activation = "relu"
    bias: bool = True

    def build(
        self, input_shape: tuple[int, ...], outputs: int, generator: "torch.Generator | None" = None
    ) -> "torch.nn.Sequential":
        """Build the network; its layers are named ``convolution1`` …, ``hidden`` if there is one, and ``readout``."""
        from exhume.models.building import build_convnet

        return build_convnet(self, input_shape, outputs, generator)
