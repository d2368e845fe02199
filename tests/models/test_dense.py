"""Closed-form gradients of dense stacks against autograd."""

import pytest
import torch

from exhume.models.activations import ACTIVATIONS
from exhume.models.dense import dense_features
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
    layer_inputs, signals = dense_features(stack, weights, inputs)

    for j, c in [(0, 0), (3, 1), (4, 2)]:
        gradients = dict(
            zip(weights, torch.autograd.grad(model(inputs[j : j + 1])[0, c], model.parameters()), strict=True)
        )
        for index, layer in enumerate(stack.layers):
            outer = layer.weight_scale * torch.outer(signals[index][c, j], layer_inputs[index][j])
            assert torch.allclose(outer, gradients[layer.weight], atol=1e-12)
            if layer.bias is not None:
                assert torch.allclose(signals[index][c, j], gradients[layer.bias], atol=1e-12)


def test_the_last_layer_inputs_give_the_outputs():
    model = MLP(width=6, depth=2, parameterisation="ntk").build((4,), 3, torch.Generator().manual_seed(0)).double()
    weights = {name: weight.detach() for name, weight in model.state_dict().items()}
    inputs = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    layer_inputs, _ = dense_features(dense_stack(model), weights, inputs)
    assert torch.allclose(model.layer3(layer_inputs[-1]), model(inputs), atol=1e-12)


def test_relu_is_flat_at_its_kink_as_autograd_has_it():
    stack = dense_stack(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1)))
    weights = {
        "0.weight": torch.eye(3),
        "0.bias": torch.zeros(3),
        "2.weight": torch.ones(1, 3),
        "2.bias": torch.zeros(1),
    }
    _, signals = dense_features(stack, weights, torch.tensor([[-1.0, 0.0, 1.0]]))
    assert signals[0].flatten().tolist() == [0.0, 0.0, 1.0]


def test_features_are_differentiable_in_the_inputs():
    model = MLP(width=4, depth=2, activation="softplus").build((3,), 1, torch.Generator().manual_seed(0)).double()
    stack = dense_stack(model)
    weights = {name: weight.detach() for name, weight in model.state_dict().items()}

    def features(inputs):
        layer_inputs, signals = dense_features(stack, weights, inputs)
        return (*layer_inputs, *signals[:-1])

    inputs = torch.randn(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    assert torch.autograd.gradcheck(features, inputs)
