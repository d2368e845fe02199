"""Small trunks of every kind that the inversion handles, with random weights."""

import copy

import torch
from torch import Tensor, nn

from exhume.inversion.gauss_newton import InputBox, Trunk

SHAPE = (1, 8, 8)
BOX = InputBox(torch.zeros(SHAPE), torch.ones(SHAPE))


class Residual(nn.Module):
    """A residual block with batch normalisation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels))

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.relu(inputs + self.inner(inputs))


def plain() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 24, 3, stride=2, padding=1), nn.ReLU())


def pooled() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2))


def residual() -> nn.Sequential:
    layers = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), Residual(12), nn.AvgPool2d(2, 1))
    for layer in layers.modules():
        if isinstance(layer, nn.BatchNorm2d) and layer.running_mean is not None and layer.running_var is not None:
            layer.running_mean.normal_(0, 0.1)
            layer.running_var.uniform_(0.5, 2.0)
    return layers


def function_of(layers: nn.Module) -> Trunk:
    """Return a trunk with flat features that follows the precision of its inputs."""
    single = nn.Sequential(layers, nn.Flatten()).eval().requires_grad_(False)
    double = copy.deepcopy(single).double()
    return lambda inputs: (double if inputs.dtype == torch.float64 else single)(inputs)


def draw_images(count: int = 3, seed: int = 0) -> Tensor:
    """Draw images with a flat background and a bright patch, which makes ties in max pooling."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.zeros(count, *SHAPE)
    images[:, :, 2:6, 2:6] = torch.rand(count, 1, 4, 4, generator=generator)
    return images
