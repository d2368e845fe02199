"""Closed-form gradient sums against autograd, against torch.func and against another implementation."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call

from exhume.gradient_sums.dense import DenseSums
from exhume.gradient_sums.smooth_relu import SmoothReLU, with_smooth_relus
from exhume.gradient_sums.sums import ChunkedSums, ModuleSums, WeighedSums, gradient_sums, squared_residual
from exhume.models.convnet import ConvNet
from exhume.models.mlp import MLP
from exhume.models.structure import dense_stack
from exhume.records import AttackerView

SHAPE = (1, 3, 2)


def view_of(model, second=None):
    """A view in float64 whose two ends are two draws."""
    model = model.double()
    final = {name: weight.clone() for name, weight in model.state_dict().items()}
    generator = torch.Generator().manual_seed(3)
    initial = {
        name: weight + 0.3 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
        for name, weight in final.items()
    }
    return AttackerView(model=model, initial=initial, final=final, input_shape=SHAPE)


def built(outputs=2, seed=0, **settings):
    return MLP(**settings).build(SHAPE, outputs, torch.Generator().manual_seed(seed))


def draws(candidates=4, points=2, outputs=2, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(candidates, 6, generator=generator, dtype=torch.float64),
        torch.randn(points, candidates, outputs, generator=generator, dtype=torch.float64),
    )


def slow_sum(model, weights, inputs, duals):
    """Σ_j Σ_c α_jc ∇θ f_c(x_j), one backward pass an example and an output."""
    leaves = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
    total = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    for one, dual in zip(inputs, duals, strict=True):
        outputs = functional_call(model, leaves, one.reshape(1, *SHAPE)).flatten()
        for output, weight in zip(outputs, dual, strict=True):
            gradients = torch.autograd.grad(output, list(leaves.values()), retain_graph=True, allow_unused=True)
            for name, gradient in zip(total, gradients, strict=True):
                total[name] += 0 if gradient is None else weight * gradient
    return total


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


@pytest.mark.parametrize("architecture", ARCHITECTURES.values(), ids=ARCHITECTURES.keys())
def test_closed_form_sums_are_sums_of_gradients(architecture):
    view = view_of(built(**architecture))
    inputs, duals = draws()
    sums = gradient_sums(view, [view.initial, view.final], torch.float64)
    assert isinstance(sums, DenseSums)
    fast = dict(zip(sums.names, sums(inputs, duals)[0], strict=True))
    slow = [slow_sum(view.model, w, inputs, d) for w, d in zip((view.initial, view.final), duals, strict=True)]
    for name in view.final:
        torch.testing.assert_close(fast[name], slow[0][name] + slow[1][name], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("sharpness", [None, 4.0, 80.0])
@pytest.mark.parametrize("architecture", ARCHITECTURES.values(), ids=ARCHITECTURES.keys())
def test_closed_form_and_torch_func_agree_in_value_and_gradients(architecture, sharpness):
    view = view_of(built(**architecture))
    inputs, duals = draws()
    points = [view.initial, view.final]
    beta = None if sharpness is None else torch.tensor(sharpness, dtype=torch.float64)
    fast = DenseSums.at(dense_stack(view.model), points, torch.float64)
    slow = ModuleSums.at(view, points, torch.float64)
    assert fast.names == slow.names
    target = tuple(view.final[name] - view.initial[name] for name in fast.names)
    for one, other in zip(
        squared_residual(fast, target, inputs, duals, beta),
        squared_residual(slow, target, inputs, duals, beta),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


@settings(max_examples=15)
@given(
    candidates=st.integers(1, 5),
    points=st.integers(1, 3),
    outputs=st.integers(1, 3),
    depth=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_gradients_are_those_of_finite_differences(candidates, points, outputs, depth, seed):
    view = view_of(built(outputs=outputs, width=5, depth=depth, seed=seed))
    inputs, duals = draws(candidates, points, outputs, seed)
    ends = [view.initial, view.final, view.initial][:points]
    sums = gradient_sums(view, ends, torch.float64)
    target = tuple(view.final[name] - view.initial[name] for name in sums.names)
    beta = torch.tensor(3.0, dtype=torch.float64)
    _, to_inputs, to_duals = squared_residual(sums, target, inputs, duals, beta)
    for variable, gradient, rest in ((inputs, to_inputs, duals), (duals, to_duals, inputs)):
        direction = torch.randn(variable.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

        def value(step, variable=variable, direction=direction, rest=rest):
            moved = variable + step * direction
            pair = (moved, rest) if variable is inputs else (rest, moved)
            return float(squared_residual(sums, target, *pair, beta)[0])

        slope = (value(1e-5) - value(-1e-5)) / 2e-5
        assert slope == pytest.approx(float((gradient * direction).sum()), rel=1e-5, abs=1e-6)


def test_within_a_subspace_sums_are_the_same_in_coordinates():
    view = view_of(built(width=7))
    coordinates, duals = draws()[0][:, :3], draws(points=1)[1]
    basis = torch.linalg.qr(torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).Q
    sums = DenseSums.at(dense_stack(view.model), [view.final], torch.float64)
    whole = sums(coordinates @ basis.T, duals)[0]
    inside = sums.within(basis)(coordinates, duals)[0]
    torch.testing.assert_close(inside[0] @ basis.T, whole[0])
    for one, other in zip(inside[1:], whole[1:], strict=True):
        torch.testing.assert_close(one, other)


class Functional(nn.Module):
    """A model written with calls instead of modules, with a branch that no dense stack has."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 5), nn.Linear(5, 5), nn.Linear(5, 2)

    def forward(self, inputs):
        hidden = torch.relu(self.first(inputs.flatten(1)))
        return self.last(hidden + nn.functional.relu(self.second(hidden), inplace=True))


class Stubborn(Functional):
    """One that torch.fx cannot trace."""

    def forward(self, inputs):
        return super().forward(inputs) if inputs.sum() > -1e9 else inputs


@pytest.mark.parametrize(
    "model", [Functional(), Stubborn(), ConvNet(depth=1).build(SHAPE, 2)], ids=["calls", "stubborn", "conv"]
)
def test_any_module_has_sums(model):
    view = view_of(model)
    inputs, duals = draws(points=1)
    sums = gradient_sums(view, [view.final], torch.float64)
    assert isinstance(sums, ModuleSums)
    fast = dict(zip(sums.names, sums(inputs, duals)[0], strict=True))
    slow = slow_sum(view.model, view.final, inputs, duals[0])
    for name in fast:
        torch.testing.assert_close(fast[name], slow[name], rtol=1e-10, atol=1e-12)


def test_relu_calls_and_modules_become_smooth():
    smooth = with_smooth_relus(Functional())
    assert sum(isinstance(module, SmoothReLU) for module in smooth.modules()) == 2
    smooth = with_smooth_relus(nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=True), nn.Sequential(nn.ReLU())))
    assert sum(isinstance(module, SmoothReLU) for module in smooth.modules()) == 2
    assert isinstance(with_smooth_relus(nn.ReLU()), SmoothReLU)


def test_a_sharper_softplus_is_nearer_to_a_relu():
    view = view_of(built(width=7))
    inputs, duals = draws(points=1)
    sums = gradient_sums(view, [view.final], torch.float64)
    exact = sums(inputs, duals)[0]
    errors = []
    for sharpness in (1.0, 10.0, 100.0, 1e4):
        smooth = sums(inputs, duals, torch.tensor(sharpness, dtype=torch.float64))[0]
        errors.append(float(sum((a - b).square().sum() for a, b in zip(smooth, exact, strict=True))))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-6 * errors[0]


@pytest.mark.parametrize("above", [0.0, 0.3])
@pytest.mark.parametrize("sharpness", [None, 4.0])
@pytest.mark.parametrize("architecture", ARCHITECTURES.values(), ids=ARCHITECTURES.keys())
def test_layers_that_count_less_are_the_same_in_closed_form(architecture, sharpness, above):
    view = view_of(built(**architecture))
    inputs, duals = draws(points=1)
    beta = None if sharpness is None else torch.tensor(sharpness, dtype=torch.float64)
    sums = gradient_sums(view, [view.final], torch.float64)
    first = sums.names[0].rpartition(".")[0]
    factors = tuple(1.0 if name.startswith(first) else above for name in sums.names)
    fast, slow = WeighedSums(sums, factors), WeighedSums(ChunkedSums(sums, 99), factors)
    target = fast.weighed(tuple(view.initial[name] for name in sums.names))
    for one, other in zip(
        squared_residual(fast, target, inputs, duals, beta),
        squared_residual(slow, target, inputs, duals, beta),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-11)
