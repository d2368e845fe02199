"""The first trained layer: its weights, what it reads, and the backward signals above it."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from exhume.clues.first_layer import backward_signals, read_first_layer, stored_precision
from exhume.core.errors import Refusal
from exhume.models.convnet import ConvNet
from exhume.models.mlp import MLP
from exhume.records import AttackerView
from tests.attacks.gates.victims import draw, train_by_plain_loop, view_of, with_constant


@pytest.mark.parametrize("parameterisation", ["standard", "ntk", "torch"])
def test_before_and_after_compute_the_pre_activations(parameterisation):
    data = draw(size=6)
    view = view_of(data, MLP(width=32, parameterisation=parameterisation), steps=50)
    layer = read_first_layer(view)
    assert (layer.name, layer.activation, layer.reads_input, layer.has_bias) == ("layer1", "relu", True, True)
    assert layer.input_size == 64
    inputs = with_constant(view, data.train.inputs)
    for weights, augmented in ((view.initial, layer.before), (view.final, layer.after)):
        module = view.module(weights).double()
        expected = module.layer1(view.to_model(data.train.inputs).double().flatten(1))
        torch.testing.assert_close(inputs @ augmented.T, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("parameterisation", ["standard", "ntk"])
def test_one_step_moves_the_layer_by_inputs_times_signals(parameterisation):
    data = draw(size=6)
    view = view_of(data, MLP(width=32, parameterisation=parameterisation), steps=1, lr=0.1, precision="float64")
    layer = read_first_layer(view)
    inputs = with_constant(view, data.train.inputs)
    outputs = view.module(view.initial)(view.to_model(data.train.inputs).double())
    errors = (outputs - (2.0 * data.train.labels[:, None] - 1)) / len(inputs)
    signals = backward_signals(view, view.initial, layer)(inputs @ layer.before.T)
    effects = -0.1 * (errors[:, :, None] * signals).sum(dim=1)
    torch.testing.assert_close(layer.change, inputs.T @ effects, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("depth", [1, 3])
def test_signals_are_the_gradients_by_the_bias(depth):
    data = draw(size=10, classes="all")
    view = view_of(data, MLP(width=24, depth=depth), steps=20)
    layer = read_first_layer(view)
    module = view.module(view.final).double().requires_grad_()
    images = view.to_model(data.train.inputs).double()
    signals = backward_signals(view, view.final, layer)(with_constant(view, data.train.inputs) @ layer.after.T)
    assert signals.shape == (10, 10, 24)
    for index in range(10):
        for output in range(10):
            value = module(images[[index]])[0, output]
            expected = torch.autograd.grad(value, module.layer1.bias)[0]
            torch.testing.assert_close(signals[index, output], expected, rtol=1e-5, atol=1e-9)


class FrozenFeatures(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Conv2d(1, 3, 3, stride=2).requires_grad_(False)
        self.head = nn.Linear(27, 20)
        self.out = nn.Linear(20, 1)

    def forward(self, x):
        return self.out(functional.relu(self.head(functional.relu(self.features(x)).flatten(1))))


def test_the_first_trained_layer_of_a_head_on_frozen_features_is_the_head():
    model, data = FrozenFeatures(), draw(size=6)
    targets = 2.0 * data.train.labels[:, None] - 1
    initial, final = train_by_plain_loop(
        model, data.train.inputs, targets, loss=functional.mse_loss, lr=0.05, steps=5, batch=3
    )
    layer = read_first_layer(AttackerView(model=model, initial=initial, final=final, input_shape=(1, 8, 8)))
    assert (layer.name, layer.activation, layer.reads_input) == ("head", "relu", False)
    assert layer.input_size == 27


def test_a_frozen_bias_is_no_bias():
    view = view_of(draw(size=6), MLP(width=16), steps=5)
    frozen = view.final | {"layer1.bias": view.initial["layer1.bias"]}
    assert not read_first_layer(replace(view, final=frozen)).has_bias
    assert not read_first_layer(view_of(draw(size=6), MLP(width=16, bias="none"), steps=5)).has_bias


def test_views_without_a_readable_first_layer_are_refused():
    view = view_of(draw(size=6), MLP(width=16), steps=5)
    with pytest.raises(Refusal, match="no initial weights"):
        read_first_layer(replace(view, initial=None))
    with pytest.raises(Refusal, match="nothing was trained"):
        read_first_layer(replace(view, final=view.initial))
    with pytest.raises(Refusal, match="not a dense layer"):
        read_first_layer(view_of(draw(size=6), ConvNet(channels=2), steps=5))


SHORT = [torch.float16, torch.bfloat16]


class TestPrecision:
    @pytest.mark.parametrize("dtype", SHORT)
    def test_a_tensor_that_was_rounded_shows_it_whatever_holds_it(self, dtype):
        tensor = torch.randn(40, 30, generator=torch.Generator().manual_seed(0))
        assert stored_precision(tensor.to(dtype).float()) == torch.finfo(dtype).eps
        assert stored_precision(tensor) == torch.finfo(torch.float32).eps
        assert stored_precision(tensor.double()) == torch.finfo(torch.float32).eps * 2**-29

    @pytest.mark.parametrize("dtype", SHORT)
    def test_a_change_that_was_sent_in_a_short_format_shows_it(self, dtype):
        view = view_of(draw(size=6), MLP(width=32), steps=50)
        assert view.initial is not None
        sent = {name: (view.final[name] - weight).to(dtype).float() for name, weight in view.initial.items()}
        rounded = replace(view, final={name: weight + sent[name] for name, weight in view.initial.items()})
        layer = read_first_layer(rounded)
        assert layer.precision == torch.finfo(dtype).eps
        size = float(layer.change[layer.change != 0].pow(2).mean() ** 0.5)
        assert layer.rounding == pytest.approx(layer.precision * size / 12**0.5)
        assert read_first_layer(view).rounding == 0.0
