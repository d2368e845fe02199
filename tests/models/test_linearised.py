"""The linearised network: linear in its weights, and equal to the network to first order."""

import copy

import pytest
import torch

from exhume.models.linearised import Linearised
from exhume.models.tangent import compute_outputs
from tests.models.test_tangent import MODELS, example


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
    moved = compute_outputs(model, {key: weights[key] + small * change[key] for key in weights}, inputs)
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
