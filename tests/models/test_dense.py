"""Closed-form tangent features against derivatives taken by autograd."""

import pytest
import torch

from exhume.models.building import ACTIVATIONS
from exhume.models.dense import dense_features, elementwise, smoothed_relu
from exhume.models.mlp import MLP
from exhume.models.structure import dense_stack


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("parameterisation", ["standard", "ntk"])
@pytest.mark.parametrize("bias", ["all", "first", "none"])
def test_gradients_are_outer_products_of_features(activation, parameterisation, bias):
    architecture = MLP(width=6, depth=3, activation=activation, parameterisation=parameterisation, bias=bias)
    generator = torch.Generator().manual_seed(0)
    model = architecture.build((1, 2, 2), 3, generator).double()
    weights = {name: weight.detach() for name, weight in model.state_dict().items()}
    inputs = torch.randn(5, 1, 2, 2, dtype=torch.float64, generator=generator)
    stack = dense_stack(model)
    heard, signals = dense_features(stack, weights, inputs)

    for j, c in [(0, 0), (3, 1), (4, 2)]:
        gradients = dict(
            zip(weights, torch.autograd.grad(model(inputs[j : j + 1])[0, c], model.parameters()), strict=True)
        )
        for index, layer in enumerate(stack.layers):
            outer = layer.weight_scale * torch.outer(signals[index][c, j], heard[index][j])
            assert torch.allclose(outer, gradients[layer.weight], atol=1e-12)
            if layer.bias is not None:
                assert torch.allclose(signals[index][c, j], gradients[layer.bias], atol=1e-12)


@pytest.mark.parametrize("sharpness", [0.5, 10.0, 200.0])
def test_smoothed_relu_has_its_own_slope_and_tends_to_relu(sharpness):
    smooth = smoothed_relu(sharpness)
    points = torch.linspace(-3, 3, 61, dtype=torch.float64)
    assert torch.allclose(smooth.slope(points), elementwise(smooth.value).slope(points), atol=1e-9)
    assert (smooth.value(points) - points.relu()).abs().max() <= torch.log(torch.tensor(2.0)) / sharpness + 1e-9


def test_relu_is_flat_at_its_kink_as_autograd_has_it():
    assert elementwise(torch.nn.ReLU()).slope(torch.tensor([-1.0, 0.0, 1.0])).tolist() == [0.0, 0.0, 1.0]


def test_features_can_be_differentiated_by_their_inputs():
    model = MLP(width=4, depth=2).build((3,), 1, torch.Generator().manual_seed(0)).double()
    stack = dense_stack(model)
    weights = {name: weight.detach() for name, weight in model.state_dict().items()}

    def features(inputs):
        heard, signals = dense_features(stack, weights, inputs, smoothed_relu(5.0))
        return (*heard, *signals[:-1])

    inputs = torch.randn(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    assert torch.autograd.gradcheck(features, inputs)
