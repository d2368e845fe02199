"""Activations: each function has the module that computes the same."""

import pytest
import torch
from torch.nn import functional

from exhume.models.activations import ACTIVATIONS, MODULE_OF_FUNCTION


@pytest.mark.parametrize("name", MODULE_OF_FUNCTION)
def test_function_and_module_compute_the_same(name):
    function = getattr(functional, name, None) or getattr(torch, name)
    inputs = torch.linspace(-8, 8, 33, dtype=torch.float64)
    assert torch.equal(MODULE_OF_FUNCTION[name]()(inputs), function(inputs.clone()))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_is_elementwise_and_has_no_weights(name):
    module = ACTIVATIONS[name]()
    inputs = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(module(inputs)[1, 2], module(inputs[1, 2]))
    assert not list(module.parameters())
