"""Smooth ReLUs: they replace modules and calls, and tend to ReLUs."""

import pytest
import torch
from torch import nn

from exhume.gradient_sums.smooth_relu import GatedReLU, SmoothReLU, with_smooth_relus
from exhume.models.outputs import with_tensor_output
from tests.gradient_sums.networks import Functional, Untraceable


def count(model):
    return sum(isinstance(module, SmoothReLU) for module in model.modules())


def test_calls_and_modules_are_replaced():
    assert count(with_smooth_relus(Functional())) == 2
    nested = nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=True), nn.Sequential(nn.ReLU()))
    assert count(with_smooth_relus(nested)) == 2
    assert count(nested) == 0, "the model itself is not changed"
    assert isinstance(with_smooth_relus(nn.ReLU()), SmoothReLU)
    assert count(with_smooth_relus(Untraceable())) == 0


@pytest.mark.parametrize("kind", [SmoothReLU, GatedReLU])
def test_at_infinite_sharpness_it_is_a_relu(kind):
    at = torch.linspace(-3, 3, 10, dtype=torch.float64, requires_grad=True)
    values = kind().double()(at)
    torch.testing.assert_close(values, at.relu())
    torch.testing.assert_close(torch.autograd.grad(values.sum(), at)[0], (at > 0).double())


@pytest.mark.parametrize("sharpness", [1.0, 30.0, 1e4])
def test_slopes_are_sigmoids_and_only_a_gated_relu_keeps_its_values(sharpness):
    at = torch.linspace(-3, 3, 10, dtype=torch.float64, requires_grad=True)
    for kind in (SmoothReLU, GatedReLU):
        unit = kind().double()
        unit.sharpness.fill_(sharpness)
        values = unit(at)
        slope = torch.autograd.grad(values.sum(), at)[0]
        torch.testing.assert_close(slope, torch.sigmoid(sharpness * at).detach(), rtol=1e-9, atol=1e-12)
        exact = at.relu() if kind is GatedReLU else torch.logaddexp(sharpness * at, torch.zeros_like(at)) / sharpness
        torch.testing.assert_close(values, exact, rtol=1e-9, atol=1e-12)


def test_a_copy_takes_out_the_same_tensor_as_the_model():
    class Returning(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(4, 3), nn.Linear(3, 2)

        def forward(self, inputs):
            features = self.first(inputs).relu()
            return {"features": features, "logits": self.last(features)}

    model = with_tensor_output(Returning(), (4,))
    inputs = torch.ones(2, 4)
    torch.testing.assert_close(with_smooth_relus(model)(inputs), model(inputs))
