"""Activations: values, slopes and the tangents of slopes are consistent with autograd."""

import pytest
import torch
from torch import nn

from exhume.gradient_sums.activations import Activation, sigmoid_adjoint, softplus

AT = torch.tensor([-45.0, -3.0, -0.2, 0.1, 2.0, 39.0, 45.0], dtype=torch.float64)


@pytest.mark.parametrize(
    "curve",
    [
        Activation.differentiable(nn.Tanh()).exact,
        Activation.differentiable(nn.GELU()).exact,
        Activation.differentiable(nn.Softplus()).exact,
    ],
    ids=["tanh", "gelu", "torch softplus"],
)
def test_derivatives_are_those_of_autograd(curve):
    at = AT.clone().requires_grad_()
    value, slope, slope_tangent = curve(at)
    torch.testing.assert_close(slope, torch.autograd.grad(value.sum(), at, create_graph=True)[0])
    tangent = torch.arange(1.0, 8.0, dtype=torch.float64)
    second = torch.autograd.grad(slope.sum(), at, retain_graph=True)[0]
    torch.testing.assert_close(slope_tangent(tangent), second * tangent, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("bias", [None, 0.7])
def test_the_adjoint_of_a_smooth_relu_is_that_of_autograd(bias):
    at = AT.clone().requires_grad_()
    offset = None if bias is None else torch.tensor(bias, dtype=torch.float64)
    sharpness = torch.tensor(1.3, dtype=torch.float64)
    value, slope = Activation.relu().smooth(at.clone(), offset, sharpness)
    torch.testing.assert_close(slope, torch.autograd.grad(value.sum(), at, create_graph=True)[0])
    tangent, signals, arriving = torch.rand(3, len(AT), generator=torch.manual_seed(0), dtype=torch.float64)
    wanted = torch.autograd.grad((slope * tangent * signals + arriving * value).sum(), at)[0]
    slope = slope.detach()
    found = sigmoid_adjoint(slope, slope * tangent, signals, arriving.clone(), sharpness)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)
    alone = sigmoid_adjoint(slope, slope * tangent, signals, None, sharpness)
    torch.testing.assert_close(alone, found - arriving * slope, rtol=1e-9, atol=1e-12)


def test_gates_only_keeps_values_and_smooths_slopes():
    value, slope = Activation.relu(gates_only=True).smooth(AT.clone(), None, torch.tensor(1.0))
    assert torch.equal(value, AT.relu())
    torch.testing.assert_close(slope, AT.sigmoid())


def test_the_threshold_of_softplus_does_not_show():
    torch.testing.assert_close(softplus(AT), torch.logaddexp(AT, torch.zeros_like(AT)), rtol=1e-15, atol=1e-18)
