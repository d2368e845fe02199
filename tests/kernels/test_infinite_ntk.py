"""The analytic kernel: values of neural-tangents, a slow twin, its limits, and inputs at an angle of zero."""

import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.core.errors import ExhumeError
from exhume.kernels import InfiniteNTK, empirical_ntk
from exhume.models.convnet import ConvNet
from exhume.models.mlp import MLP

REFERENCE = json.loads((Path(__file__).parent / "fixtures" / "infinite_ntk.json").read_text())


def case_kernel(case):
    standard = case["parameterization"] == "standard"
    return InfiniteNTK(
        depth=case["hidden_layers"],
        weight_std=case["w_std"],
        bias_std=case["b_std"],
        width=case["width"] if standard else None,
        bias_gain=float(case["b_std"] > 0) if standard else case["b_std"] ** 2,
    )


def plain_autograd(kernel, left, right):
    """Return the kernel by the textbook recursion, which autograd can differentiate unless inputs coincide."""
    size = left.shape[1]
    spread, shift = kernel.weight_std**2, kernel.bias_std**2
    gain, first = (spread, spread) if kernel.width is None else (kernel.width, size)
    k = left @ right.T / size
    ntk = first * k + kernel.bias_gain
    k = spread * k + shift
    p = (spread * (left**2).sum(1) / size + shift)[:, None]
    q = (spread * (right**2).sum(1) / size + shift)[None]
    for _ in range(kernel.depth):
        angle = torch.arccos((k / (p * q).sqrt()).clamp(-1, 1))
        on = (math.pi - angle) / (2 * math.pi)
        moment = (p * q).sqrt() * (torch.sin(angle) + (math.pi - angle) * torch.cos(angle)) / (2 * math.pi)
        ntk = gain * moment + kernel.bias_gain + spread * ntk * on
        k, p, q = spread * moment + shift, spread * p / 2 + shift, spread * q / 2 + shift
    return ntk


def name_of(case):
    return "-".join(str(case[key]) for key in ("hidden_layers", "w_std", "b_std", "parameterization"))


@pytest.mark.parametrize("case", REFERENCE["cases"], ids=name_of)
def test_kernel_equals_neural_tangents(case):
    left, right = (torch.tensor(REFERENCE[name], dtype=torch.float64) for name in ("x1", "x2"))
    kernel = case_kernel(case)
    assert torch.allclose(kernel(left, right), torch.tensor(case["ntk"], dtype=torch.float64), rtol=1e-9, atol=1e-9)
    itself = torch.tensor(case["ntk_x1_x1"], dtype=torch.float64)
    assert torch.allclose(kernel(left), itself, rtol=1e-9, atol=1e-9)
    assert torch.allclose(kernel.diagonal(left), itself.diagonal(), rtol=1e-9, atol=1e-9)
    assert torch.allclose(kernel(left.float(), right.float()).double(), kernel(left, right), rtol=1e-3)


@settings(max_examples=25)
@given(
    depth=st.integers(0, 4),
    bias=st.sampled_from([0.0, 0.3]),
    width=st.sampled_from([None, 64]),
    seed=st.integers(0, 10_000),
)
def test_values_and_gradients_equal_the_slow_twin(depth, bias, width, seed):
    kernel = InfiniteNTK(depth=depth, bias_std=bias, width=width, weight_std=1.3)
    generator = torch.Generator().manual_seed(seed)
    left, right = (torch.randn(n, 5, dtype=torch.float64, generator=generator) for n in (4, 3))
    weights = torch.randn(4, 3, dtype=torch.float64, generator=generator)
    values, gradients = [], []
    for function in (kernel, lambda a, b: plain_autograd(kernel, a, b)):
        a, b = left.clone().requires_grad_(), right.clone().requires_grad_()
        table = function(a, b)
        (weights * table).sum().backward()
        values.append(table.detach())
        gradients.append((a.grad, b.grad))
    assert torch.allclose(*values, rtol=1e-9)
    for fast, slow in zip(*gradients, strict=True):
        assert torch.allclose(fast, slow, rtol=1e-6, atol=1e-8)


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000), depth=st.integers(0, 3))
def test_gradient_of_the_kernel_of_a_set_with_itself(seed, depth):
    kernel = InfiniteNTK(depth=depth, width=32)
    inputs = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    weights = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + 1))
    table, vjp = kernel.with_vjp(inputs)
    gradient = vjp(weights)
    step = 1e-6 * torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + 2))
    ahead, behind = ((weights * kernel(inputs + sign * step)).sum() for sign in (1, -1))
    assert torch.allclose((ahead - behind) / 2, (gradient * step).sum(), rtol=1e-5, atol=1e-9)
    assert torch.allclose(table, table.T)
    assert torch.linalg.eigvalsh(table).min() > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("relation", ["the same", "parallel", "opposite", "zero"])
def test_gradients_are_finite_where_the_angle_is_zero_or_undefined(dtype, relation):
    left = torch.randn(3, 7, dtype=dtype, generator=torch.Generator().manual_seed(0))
    factor = {"the same": 1.0, "parallel": 2.5, "opposite": -1.0, "zero": 0.0}[relation]
    a, b = left.clone().requires_grad_(), (factor * left).requires_grad_()
    table = InfiniteNTK(depth=3)(a, b)
    table.sum().backward()
    itself = left.clone().requires_grad_()
    InfiniteNTK(depth=3)(itself).sum().backward()
    assert torch.isfinite(table).all()
    assert all(torch.isfinite(x.grad).all() for x in (a, b, itself))


def test_the_kernel_of_equal_inputs_is_that_of_one_input_with_itself():
    inputs = torch.rand(5, 784, generator=torch.Generator().manual_seed(3))
    kernel = InfiniteNTK(depth=2)
    assert torch.allclose(kernel(inputs).diagonal(), kernel.diagonal(inputs), rtol=1e-6)
    assert torch.allclose(kernel(inputs, inputs.clone()).diagonal(), kernel.diagonal(inputs), rtol=1e-5)


@pytest.mark.parametrize("architecture", [MLP(width=1, bias="none"), MLP(width=1, depth=1, parameterisation="ntk")])
def test_empirical_kernel_tends_to_the_analytic_one_as_one_over_root_width(architecture):
    inputs = torch.randn(6, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    errors = {}
    for width, draws in ((64, 24), (1024, 8)):
        wide = MLP(**{**vars(architecture), "width": width})
        analytic = InfiniteNTK.of(wide)(inputs)
        deviations = []
        for seed in range(draws):
            model = wide.build((10,), 1, torch.Generator().manual_seed(seed)).double()
            empirical = empirical_ntk(model, {k: v.detach() for k, v in model.state_dict().items()}, inputs)
            deviations.append((empirical - analytic) / analytic.norm())
        errors[width] = torch.stack(deviations).square().sum((1, 2)).mean().sqrt()
        bias = torch.stack(deviations).mean(0).norm()
        assert bias < 3 * errors[width] / math.sqrt(draws)  # the mean over networks is the analytic kernel
    assert 2.2 < errors[64] / errors[1024] < 7.0  # 16 times the width: a quarter of the deviation
    assert errors[1024] < 0.1


def test_unknown_networks_are_refused():
    for architecture in (MLP(activation="tanh"), MLP(bias="first"), MLP(parameterisation="torch"), ConvNet()):
        with pytest.raises(ExhumeError, match="analytic kernel"):
            InfiniteNTK.of(architecture)
    with pytest.raises(ExhumeError, match="width should be greater than 0"):
        InfiniteNTK(width=0)
