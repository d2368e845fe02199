"""The tangent space: closed forms against Jacobians, and both products of the Jacobian against each other."""

import pytest
import torch
from torch import nn

from exhume.models import tangent
from exhume.models.convnet import ConvNet
from exhume.models.mlp import MLP
from exhume.models.tangent import (
    jacobian_vector_product,
    jacobians,
    kernel_blocks,
    vector_jacobian_product,
)

MODELS = {
    "mlp": MLP(width=6, depth=2).build((1, 8, 8), 3, torch.Generator().manual_seed(0)).double(),
    "ntk": MLP(width=6, depth=2, parameterisation="ntk", bias="first")
    .build((1, 8, 8), 3, torch.Generator().manual_seed(0))
    .double(),
    "convnet": ConvNet(channels=3).build((1, 8, 8), 3, torch.Generator().manual_seed(0)).double(),
}


def example(name, count=4, seed=1):
    model = MODELS[name]
    weights = {key: value.detach() for key, value in model.state_dict().items()}
    inputs = torch.randn(count, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return model, weights, inputs


def gradient_rows(model, inputs):
    """The slow twin: one backward pass per example and output."""
    rows = []
    for one in inputs:
        outputs = model(one[None])[0]
        grads = [torch.autograd.grad(value, model.parameters(), retain_graph=True) for value in outputs]
        rows.append(torch.stack([torch.cat([part.flatten() for part in grad]) for grad in grads]))
    return torch.stack(rows)


@pytest.mark.parametrize("name", MODELS)
def test_jacobians_and_kernel_blocks_match_single_gradients(name, monkeypatch):
    model, weights, inputs = example(name)
    others = example(name, count=3, seed=2)[2]
    left, right = gradient_rows(model, inputs), gradient_rows(model, others)
    monkeypatch.setattr(tangent, "SLICE", 2 * left[0].numel())  # two examples per slice, so that slices meet
    slices = list(jacobians(model, weights, inputs))
    assert [len(some) for some in slices] == [2, 2]
    assert torch.allclose(torch.cat(slices), left, atol=1e-12)
    expected = torch.einsum("icp,jdp->icjd", left, right)
    assert torch.allclose(kernel_blocks(model, weights, inputs, others), expected, atol=1e-10)
    assert torch.allclose(kernel_blocks(model, weights, inputs), torch.einsum("icp,jdp->icjd", left, left), atol=1e-10)


@pytest.mark.parametrize("name", MODELS)
def test_jacobian_products_are_adjoint_and_equal_the_jacobian(name):
    model, weights, inputs = example(name)
    generator = torch.Generator().manual_seed(3)
    duals = torch.randn(4, 3, dtype=torch.float64, generator=generator)
    change = {key: torch.randn(value.shape, dtype=torch.float64, generator=generator) for key, value in weights.items()}
    outputs, pushed = jacobian_vector_product(model, weights, inputs, change)
    pulled = vector_jacobian_product(model, weights, inputs, duals)
    assert torch.allclose(outputs, model(inputs))
    assert torch.allclose((pushed * duals).sum(), sum((pulled[key] * change[key]).sum() for key in weights))
    flat = torch.cat([change[key].flatten() for key in weights])
    assert torch.allclose(pushed, gradient_rows(model, inputs) @ flat, atol=1e-10)


def test_a_dense_stack_over_the_last_axis_falls_back_to_jacobians():
    model = nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 1)).double()
    weights = {key: value.detach() for key, value in model.state_dict().items()}
    inputs = torch.randn(2, 3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert kernel_blocks(model, weights, inputs).shape == (2, 3, 2, 3)
