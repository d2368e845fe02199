"""Rules of optimisers against PyTorch's own, step by step."""

import pytest
import torch

from exhume.hypergradients.rules import AdamRule, MomentumRule, Rule

THEIRS = {
    "sgd": (MomentumRule(), torch.optim.SGD, {}),
    "momentum": (MomentumRule(momentum=0.8), torch.optim.SGD, {"momentum": 0.8}),
    "adam": (AdamRule(mean_decay=0.7, square_decay=0.99), torch.optim.Adam, {"betas": (0.7, 0.99)}),
    "adamw": (AdamRule(decoupled_decay=0.1), torch.optim.AdamW, {"weight_decay": 0.1}),
}


@pytest.mark.parametrize("name", THEIRS)
def test_steps_are_those_of_pytorch(name):
    rule, kind, settings = THEIRS[name]
    generator = torch.Generator().manual_seed(0)
    weights = torch.nn.Parameter(torch.randn(7, generator=generator, dtype=torch.float64))
    gradients = torch.randn(9, 7, generator=generator, dtype=torch.float64)
    assert isinstance(rule, Rule)
    state = rule.begin(weights.detach().clone())
    optimiser = kind([weights], lr=0.03, **settings)
    for step, gradient in enumerate(gradients):
        weights.grad = gradient.clone()
        optimiser.step()
        state = rule.advance(state, gradient, 0.03, step)
    assert torch.allclose(state[0], weights, atol=1e-7)


def test_adam_is_differentiable_where_a_gradient_is_zero():
    rule = AdamRule()
    state = rule.begin(torch.zeros(3, dtype=torch.float64))
    slope = torch.func.grad(lambda gradient: rule.advance(state, gradient, 0.1, 0)[0].sum())(torch.zeros(3).double())
    assert bool(torch.isfinite(slope).all())
