"""Linearised training in closed form against steps of the linearised network, and at its limits."""

import copy
import math

import pytest
import torch

from exhume.models.convnet import ConvNet
from exhume.models.linearised import Linearised
from exhume.models.mlp import MLP
from exhume.models.tangent import kernel_blocks
from exhume.training.closed_form import solve_flow, weights_at

ARCHITECTURES = [MLP(width=16, depth=2), MLP(width=16, depth=1, parameterisation="ntk"), ConvNet(channels=3)]


def problem(architecture, outputs=2, examples=4):
    generator = torch.Generator().manual_seed(0)
    model = architecture.build((1, 8, 8), outputs, generator).double()
    inputs = torch.randn(examples, 1, 8, 8, dtype=torch.float64, generator=generator)
    targets = torch.randn(examples, outputs, dtype=torch.float64, generator=generator)
    return model, {name: weight.detach() for name, weight in model.state_dict().items()}, inputs, targets


def walked(model, inputs, targets, *, lr, steps, momentum=0.0):
    """The slow twin: gradient descent on the linearised network."""
    lazy = Linearised(copy.deepcopy(model))
    optimiser = torch.optim.SGD(lazy.module.parameters(), lr=lr, momentum=momentum)
    for _ in range(steps):
        optimiser.zero_grad()
        (0.5 * (lazy(inputs) - targets).square().mean()).backward()
        optimiser.step()
    loss = 0.5 * (lazy(inputs) - targets).square().mean().item()
    return {name: weight.detach() for name, weight in lazy.module.named_parameters()}, loss


def distance(one, other, start):
    moved = math.sqrt(sum((other[name] - start[name]).square().sum().item() for name in start))
    return math.sqrt(sum((one[name] - other[name]).square().sum().item() for name in start)) / moved


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_finite_time_equals_tiny_steps(architecture, momentum):
    model, weights, inputs, targets = problem(architecture)
    flow = solve_flow(model, weights, inputs, targets)
    time = 1.0 / flow.rates[len(flow.rates) // 2].item()  # half of the modes settled, half not
    steps = 200
    slow, loss = walked(model, inputs, targets, lr=time * (1 - momentum) / steps, steps=steps, momentum=momentum)
    fast = weights_at(model, weights, inputs, flow, time)
    assert distance(fast, slow, weights) < 2e-2  # Euler's method is off by the size of its steps
    assert flow.loss(time) == pytest.approx(loss, rel=5e-2)


def test_steps_tend_to_the_closed_form_as_they_shrink():
    model, weights, inputs, targets = problem(ARCHITECTURES[0])
    flow = solve_flow(model, weights, inputs, targets)
    time = 1.0 / flow.rates[-2].item()
    fast = weights_at(model, weights, inputs, flow, time)
    errors = [
        distance(fast, walked(model, inputs, targets, lr=time / steps, steps=steps)[0], weights) for steps in (25, 100)
    ]
    assert errors[0] / errors[1] == pytest.approx(4.0, rel=0.1)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_infinite_time_is_kernel_regression(architecture):
    model, weights, inputs, targets = problem(architecture)
    flow = solve_flow(model, weights, inputs, targets)
    kernel = kernel_blocks(model, weights, inputs).reshape(8, 8)
    expected = torch.linalg.solve(kernel, (targets - model(inputs).detach()).reshape(-1))
    assert torch.allclose(flow.duals(math.inf), expected, rtol=1e-8)
    final = weights_at(model, weights, inputs, flow, math.inf)
    lazy = Linearised(copy.deepcopy(model))
    lazy.module.load_state_dict(final)
    assert torch.allclose(lazy(inputs), targets, atol=1e-9)
    assert flow.loss(math.inf) < 1e-20


def test_time_to_a_loss_is_found_exactly():
    model, weights, inputs, targets = problem(ARCHITECTURES[0])
    flow = solve_flow(model, weights, inputs, targets)
    for loss in (1e-2, 1e-6, 1e-12):
        assert flow.loss(flow.time_to(loss, math.inf)) == pytest.approx(loss, rel=1e-6)
    limit = flow.time_to(1e-2, math.inf)
    assert flow.time_to(1e-6, limit) == limit
    assert flow.time_to(0.0, math.inf) == math.inf
    assert flow.time_to(1e9, math.inf) == 0.0
    assert flow.duals(0.0).abs().max() == 0.0


def test_examples_with_equal_kernel_rows_are_averaged():
    model, weights, inputs, targets = problem(ARCHITECTURES[0], outputs=1, examples=3)
    inputs[1] = inputs[0]
    targets[:2, 0] = torch.tensor([1.0, 0.0], dtype=torch.float64)
    flow = solve_flow(model, weights, inputs, targets)
    final = weights_at(model, weights, inputs, flow, math.inf)
    lazy = Linearised(copy.deepcopy(model))
    lazy.module.load_state_dict(final)
    assert torch.allclose(lazy(inputs)[:2, 0], torch.tensor([0.5, 0.5], dtype=torch.float64), atol=1e-6)
    assert flow.loss(math.inf) == pytest.approx(0.5 * 0.5 / 3, rel=1e-6)
    assert flow.time_to(1e-10, math.inf) == math.inf
