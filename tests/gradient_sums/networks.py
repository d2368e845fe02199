"""Small networks in float64 with random weights at both ends, and a slow sum of gradients to compare with."""

import torch
from torch import nn
from torch.func import functional_call

from exhume.gradient_sums.sums import gradient_sums
from exhume.models.mlp import MLP
from exhume.records import AttackerView

DOUBLE = torch.float64
SHAPE = (1, 3, 2)
ARCHITECTURES = {
    "two hidden layers": {"width": 7, "depth": 2},
    "three, ntk": {"width": 5, "depth": 3, "parameterisation": "ntk"},
    "bias in the first layer": {"width": 7, "depth": 2, "bias": "first", "parameterisation": "torch"},
    "no bias": {"width": 7, "depth": 1, "bias": "none"},
    "linear": {"depth": 0},
    "tanh": {"width": 6, "activation": "tanh"},
    "gelu": {"width": 6, "activation": "gelu"},
    "leaky": {"width": 6, "activation": "leaky-relu"},
}


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def build(outputs=2, seed=0, **settings):
    return MLP(**settings).build(SHAPE, outputs, torch.Generator().manual_seed(seed))


def view_of(model, seed=3):
    """A view whose initial and final weights are two draws."""
    model = model.double()
    final = {name: weight.clone() for name, weight in model.state_dict().items()}
    generator = torch.Generator().manual_seed(seed)
    initial = {
        name: weight + 0.3 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
        for name, weight in final.items()
    }
    return AttackerView(model=model, initial=initial, final=final, input_shape=SHAPE)


def sums_and_target(view):
    """Sums at both ends of a training, and the change of the weights."""
    sums = gradient_sums(view, [view.initial, view.final], DOUBLE)
    return sums, tuple(view.final[name] - view.initial[name] for name in sums.names)


def inputs_and_duals(candidates=4, points=2, outputs=2, seed=1):
    return random(candidates, 6, seed=seed), random(points, candidates, outputs, seed=seed + 1)


def slow_sum(model, weights, inputs, duals):
    """Σ_j Σ_c α_jc ∇θ f_c(x_j), with one backward pass per example and output."""
    leaves = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
    total = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    for one, dual in zip(inputs, duals, strict=True):
        outputs = functional_call(model, leaves, one.reshape(1, *SHAPE)).flatten()
        for output, weight in zip(outputs, dual, strict=True):
            gradients = torch.autograd.grad(output, list(leaves.values()), retain_graph=True, allow_unused=True)
            for name, gradient in zip(total, gradients, strict=True):
                total[name] += 0 if gradient is None else weight * gradient
    return total


def assert_close(results, expected, rtol=1e-10, atol=1e-11):
    for one, other in zip(results, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol)


class Functional(nn.Module):
    """A model written with calls instead of modules, with a branch that no dense stack has."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 5), nn.Linear(5, 5), nn.Linear(5, 2)

    def forward(self, inputs):
        hidden = torch.relu(self.first(inputs.flatten(1)))
        return self.last(hidden + nn.functional.relu(self.second(hidden), inplace=True))


class Untraceable(Functional):
    """A model that torch.fx cannot trace."""

    def forward(self, inputs):
        return super().forward(inputs) if inputs.sum() > -1e9 else inputs
