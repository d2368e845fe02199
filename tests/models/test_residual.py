"""Built residual networks: their layers, how weights are drawn, and the images they take."""

import math

import pytest
import torch

from exhume.core.errors import ExhumeError
from exhume.models.resnet import ResNet


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_defaults_are_resnet_18():
    network = ResNet().build((3, 32, 32), 10)
    assert sum(weight.numel() for weight in network.parameters()) == 11_173_962, "as He et al.'s for CIFAR-10"
    convolutions = [layer for layer in network.modules() if isinstance(layer, torch.nn.Conv2d)]
    assert len([layer for layer in convolutions if layer.kernel_size == (3, 3)]) + 1 == 18


def test_weights_come_from_the_generator_and_keep_the_size_of_signals():
    one, same, other = (ResNet(channels=8, blocks=(1, 1)).build((1, 8, 8), 3, seeded(seed)) for seed in (0, 0, 1))
    pairs = zip(one.state_dict().values(), same.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert not torch.equal(one.stem.weight, other.stem.weight)
    wide = ResNet(channels=256, blocks=(1,)).build((3, 8, 8), 3, seeded()).stage1.block1.convolution1.weight
    assert wide.std().item() == pytest.approx(math.sqrt(2 / (9 * 256)), rel=0.01)


def test_each_stage_halves_the_resolution():
    network = ResNet(channels=2, blocks=(1, 1, 1)).build((1, 8, 8), 4).eval()
    assert network[:4](torch.zeros(5, 1, 8, 8)).shape == (5, 2, 8, 8)
    assert network[:6](torch.zeros(5, 1, 8, 8)).shape == (5, 8, 2, 2)
    assert network(torch.zeros(5, 1, 8, 8)).shape == (5, 4)


def test_inputs_that_do_not_fit_are_refused():
    with pytest.raises(ExhumeError, match=r"takes images .+ not inputs of shape \(30,\)"):
        ResNet().build((30,), 2)
    with pytest.raises(ExhumeError, match="4×4 pixels are too small to halve 3 times"):
        ResNet().build((1, 4, 4), 2)
