"""The lower part of a network returns what a layer reads, also inside transformations."""

import torch
from torch import nn

from exhume.models.lower_layers import LowerLayers


def test_the_lower_part_returns_what_the_layer_reads_and_has_derivatives() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 5), nn.ReLU(), nn.Linear(5, 2))
    inputs = torch.rand(3, 1, 8, 8)
    expected = model[:3](inputs)
    trunk = LowerLayers(model, "3")
    assert torch.equal(trunk(inputs), expected)
    pushed = torch.func.jvp(trunk, (inputs,), (torch.ones_like(inputs),))[1]
    assert pushed.shape == expected.shape
    assert float(pushed.detach().abs().sum()) > 0
