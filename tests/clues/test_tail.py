"""The dense layers above features: a network of their own, with the same gradients."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from exhume.clues.clues import clues_of
from exhume.clues.tail import tail_view
from exhume.gradient_sums.sums import gradient_sums
from exhume.models.lower_layers import LowerLayers
from exhume.records import AttackerView
from tests.attacks.gates.conv_victims import conv_network, gradient_view
from tests.attacks.gates.victims import draw


class OwnNetwork(nn.Module):
    """A network of an owner's making: a nested head, and activations as functions."""

    def __init__(self, skips: bool = False) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten())
        self.head = nn.ModuleDict({"first": nn.Linear(144, 32), "second": nn.Linear(32, 32), "out": nn.Linear(32, 2)})
        self.skips = skips

    def forward(self, inputs):
        hidden = functional.relu(self.head["first"](self.trunk(inputs)))
        above = functional.relu(self.head["second"](hidden))
        return self.head["out"](above + hidden if self.skips else above)


def gate_layer(view):
    return clues_of(view).require_gate_layers()[0]


@pytest.fixture(scope="module")
def data():
    return draw("digits", 8)


@pytest.mark.parametrize("network", [conv_network, OwnNetwork])
def test_gradient_sums_of_the_tail_are_those_of_the_whole_network(data, network):
    model = network().double()
    inputs, labels = data.to_model(data.train.inputs).double(), data.train.labels.long()
    view = gradient_view(model, replace(data, train=replace(data.train, inputs=data.train.inputs.double())))
    layer = gate_layer(view)
    tail = tail_view(view, layer)
    features = LowerLayers(view.module(view.final), layer.name)(inputs)
    residuals = (model(inputs).softmax(dim=1) - functional.one_hot(labels, 2)).detach() / len(inputs)
    sums = gradient_sums(tail, [tail.final], torch.float64)
    assert {f"{layer.name}.weight", f"{layer.name}.bias"} <= set(sums.names) == set(tail.gradient)
    for name, one in zip(sums.names, sums(features, residuals[None])[0], strict=True):
        torch.testing.assert_close(one, view.gradient[name])


def test_a_tail_reads_features_of_any_size(data):
    view = gradient_view(conv_network(), data)
    tail = tail_view(view, gate_layer(view))
    assert tail.input_shape == (256,)
    assert tail.bounds is None
    assert clues_of(tail).require_first_layer().reads_input


def test_only_a_stack_of_dense_layers_is_a_tail(data):
    view = gradient_view(OwnNetwork(skips=True), data)
    assert tail_view(view, gate_layer(view)) is None


def test_an_optimisers_state_is_restricted_to_the_tail(data):
    seen = gradient_view(conv_network(), data)
    view = AttackerView(model=seen.model, final=seen.final, input_shape=(1, 8, 8), optimiser_state=dict(seen.gradient))
    tail = tail_view(view, gate_layer(view))
    assert tail.gradient is None
    assert tail.optimiser_state.first_moment.keys() == tail.final.keys()
