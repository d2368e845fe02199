"""Smoothed functions lie above the exact ones, tend to them, and pass gradients everywhere."""

import torch
from torch import nn
from torch.nn import functional

from exhume.inversion.smoothing import Smoothed


def test_stand_ins_tend_to_the_exact_functions_from_above() -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=2, padding=1))
    values = torch.randn(2, 3, 9, 9, dtype=torch.float64)
    exact = layers(values.clone())
    distances = []
    for temperature in (1.0, 0.1, 1e-4):
        with Smoothed(temperature):
            smooth = layers(values.clone())
        assert smooth.shape == exact.shape
        assert bool((smooth >= exact - 1e-12).all())
        distances.append(float((smooth - exact).max()))
    assert distances[0] > distances[1] > distances[2]
    assert distances[2] < 1e-3


def test_every_way_to_write_relu_is_smoothed_and_other_functions_are_left_alone() -> None:
    values = torch.tensor([[-1.0, 0.0, 2.0]])
    with Smoothed(0.5):
        soft = [torch.relu(values), functional.relu(values), values.relu(), values.clone().relu_()]
        others = torch.tanh(values), functional.max_pool1d(values[None], 2)
    assert all(torch.equal(one, soft[0]) for one in soft)
    assert float(soft[0][0, 0]) > 0
    assert torch.equal(others[0], torch.tanh(values))
    assert torch.equal(others[1], functional.max_pool1d(values[None], 2))


def test_units_that_are_off_pass_gradients() -> None:
    values = torch.tensor([[-1.0, 1.0]], requires_grad=True)
    with Smoothed(1.0):
        total = torch.relu(values).sum()
    assert float(torch.autograd.grad(total, values)[0][0, 0]) > 0.1
