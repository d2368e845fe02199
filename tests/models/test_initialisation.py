"""Initial weights: their variance, their limits, and their generator."""

import pytest
import torch
from torch import nn

from exhume.models.initialisation import lecun_normal_, torch_uniform_


@pytest.mark.parametrize("fan_in", [4, 100])
def test_lecun_normals_have_variance_one_over_the_fan_in_and_are_truncated(fan_in):
    weight = torch.empty(200, 500)
    lecun_normal_(weight, fan_in, torch.Generator().manual_seed(0))
    assert weight.var().item() == pytest.approx(1 / fan_in, rel=0.03)
    scaled = weight.abs() * fan_in**0.5
    assert 2.0 < scaled.max() < 2.0 / 0.8796 + 1e-5  # two standard deviations, before rescaling


def test_uniform_weights_have_the_distribution_of_an_untouched_linear_layer():
    weight = torch.empty(300, 400)
    torch_uniform_(weight, 400, torch.Generator().manual_seed(0))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = nn.Linear(400, 300).weight
    assert weight.abs().max().item() == pytest.approx(theirs.abs().max().item(), rel=0.01)
    assert weight.std().item() == pytest.approx(theirs.std().item(), rel=0.02)


@pytest.mark.parametrize("fill", [lecun_normal_, torch_uniform_])
def test_a_seed_fixes_the_weights(fill):
    draws = []
    for seed in (0, 0, 1):
        weight = torch.empty(3, 4)
        fill(weight, 4, torch.Generator().manual_seed(seed))
        draws.append(weight)
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
