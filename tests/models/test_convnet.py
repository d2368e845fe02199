"""Convolutional networks: the images they take, and their independence of other inputs."""

import pytest
import torch

from exhume.core.errors import ExhumeError
from exhume.models.convnet import ConvNet


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 25, 25), (1, 28, 28), (3, 32, 32)])
def test_images_from_eight_by_eight_up_are_taken(shape):
    network = ConvNet(channels=4).build(shape, 3, seeded())
    assert network(torch.zeros(2, *shape)).shape == (2, 3)


def test_outputs_depend_on_their_own_input_only():
    network = ConvNet(channels=4).build((1, 8, 8), 3, seeded())
    inputs = torch.randn(5, 1, 8, 8, generator=seeded())
    assert torch.allclose(network(inputs)[2:3], network(inputs[2:3]), atol=1e-6)


def test_inputs_that_are_no_images_or_too_small_are_refused():
    with pytest.raises(ExhumeError, match="takes images"):
        ConvNet().build((30,), 1)
    with pytest.raises(ExhumeError, match="too small to halve 4 times"):
        ConvNet(depth=4).build((1, 8, 8), 1)
