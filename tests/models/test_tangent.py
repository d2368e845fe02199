"""The tangent space: closed forms against Jacobians, adjoints against each other, linearity of the linearised."""

import copy

import pytest
import torch
from torch import nn

from exhume.models import tangent
from exhume.models.convnet import ConvNet
from exhume.models.linearised import Linearised
from exhume.models.mlp import MLP
from exhume.models.tangent import change_from, jacobians, kernel_blocks, outputs_of, response

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
    """The slow twin: one backward pass an example and output."""
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
    monkeypatch.setattr(tangent, "SLICE", 2 * left[0].numel())  # two examples a slice, so that slices meet
    slices = list(jacobians(model, weights, inputs))
    assert [len(some) for some in slices] == [2, 2]
    assert torch.allclose(torch.cat(slices), left, atol=1e-12)
    expected = torch.einsum("icp,jdp->icjd", left, right)
    assert torch.allclose(kernel_blocks(model, weights, inputs, others), expected, atol=1e-10)
    assert torch.allclose(kernel_blocks(model, weights, inputs), torch.einsum("icp,jdp->icjd", left, left), atol=1e-10)


@pytest.mark.parametrize("name", MODELS)
def test_push_and_pull_are_adjoint_and_agree_with_the_jacobian(name):
    model, weights, inputs = example(name)
    generator = torch.Generator().manual_seed(3)
    duals = torch.randn(4, 3, dtype=torch.float64, generator=generator)
    change = {key: torch.randn(value.shape, dtype=torch.float64, generator=generator) for key, value in weights.items()}
    outputs, pushed = response(model, weights, inputs, change)
    pulled = change_from(model, weights, inputs, duals)
    assert torch.allclose(outputs, model(inputs))
    assert torch.allclose((pushed * duals).sum(), sum((pulled[key] * change[key]).sum() for key in weights))
    flat = torch.cat([change[key].flatten() for key in weights])
    assert torch.allclose(pushed, gradient_rows(model, inputs) @ flat, atol=1e-10)


@pytest.mark.parametrize("name", MODELS)
def test_linearised_is_the_first_order_expansion(name):
    model, weights, inputs = example(name)
    lazy = Linearised(copy.deepcopy(model))
    assert torch.allclose(lazy(inputs), model(inputs), atol=1e-12)
    generator = torch.Generator().manual_seed(4)
    change = {key: torch.randn(value.shape, dtype=torch.float64, generator=generator) for key, value in weights.items()}

    def moved_by(size):
        with torch.no_grad():
            for key, parameter in lazy.module.named_parameters():
                parameter.copy_(weights[key] + size * change[key])
        return lazy(inputs)

    step = moved_by(1.0) - model(inputs)
    assert torch.allclose(moved_by(3.0) - model(inputs), 3.0 * step, atol=1e-9)
    small = 1e-6
    moved = outputs_of(model, {key: weights[key] + small * change[key] for key in weights}, inputs)
    assert torch.allclose((moved - model(inputs)) / small, step, atol=1e-3 * step.abs().max().item())


def test_linearised_trains_its_module_and_keeps_its_start():
    model, _, inputs = example("convnet")
    lazy = Linearised(copy.deepcopy(model))
    lazy(inputs).square().mean().backward()
    slopes = {key: parameter.grad for key, parameter in lazy.module.named_parameters()}
    expected = torch.autograd.grad(model(inputs).square().mean(), model.parameters())
    for slope, other in zip(slopes.values(), expected, strict=True):
        assert torch.allclose(slope, other, atol=1e-12)
    assert all(parameter.grad is None for parameter in lazy.start.parameters())


def test_a_dense_stack_over_the_last_axis_falls_back_to_jacobians():
    model = nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 1)).double()
    weights = {key: value.detach() for key, value in model.state_dict().items()}
    inputs = torch.randn(2, 3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert kernel_blocks(model, weights, inputs).shape == (2, 3, 2, 3)
