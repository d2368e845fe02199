"""A residual network with batch normalisation, for small images."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field, PositiveInt

from exhume.core.settings import settings
from exhume.models.architecture import Architecture

if TYPE_CHECKING:
    import torch


@settings
class ResNet(Architecture):
    """A residual network (He et al. 2016) with batch normalisation and one linear layer, the output layer.

    The defaults are ResNet-18 as it is used for images of 32×32 pixels: a 3×3 convolution without pooling, four stages
    of two blocks, each stage with twice the channels and half the resolution of the one before, and the mean over
    pixels before the output layer.

    >>> import torch
    >>> ResNet(channels=4, blocks=(1, 1)).build((3, 16, 16), 10)(torch.zeros(2, 3, 16, 16)).shape
    torch.Size([2, 10])
    """

    channels: PositiveInt = 64
    """Channels of the first stage of a ResNet."""
    blocks: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = (2, 2, 2, 2)
    """Residual blocks per stage."""

    def build(
        self, input_shape: tuple[int, ...], outputs: int, generator: "torch.Generator | None" = None
    ) -> "torch.nn.Module":
        """Build the network; its parts are named ``stem``, ``normalisation``, ``stage1`` … and ``readout``."""
        from exhume.models.residual import build_resnet

        return build_resnet(self, input_shape, outputs, generator)
