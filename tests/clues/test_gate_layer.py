"""Which layers the certificate can use, for each kind of evidence."""

import pytest
import torch
from torch import nn

from exhume.clues.clues import clues_of
from exhume.clues.evidence import find_evidence
from exhume.clues.gate_layer import read_lowest_gate_layer
from exhume.core.errors import Refusal
from exhume.models.convnet import ConvNet
from exhume.records import AttackerView
from tests.attacks.gates.conv_victims import conv_network, gradient_view, weight_change_view
from tests.attacks.gates.victims import draw, view_of


def test_a_gradient_shows_the_dense_layer_above_convolutions_with_inputs_that_stood_still() -> None:
    layer = clues_of(gradient_view(conv_network(), draw(size=6))).require_gate_layers()[0]
    assert (layer.name, layer.activation, layer.reads_input) == ("hidden", "relu", False)
    assert layer.inputs_stood_still


def test_an_optimiser_state_shows_it_with_inputs_that_moved_a_little() -> None:
    view = gradient_view(conv_network(), draw(size=6))
    state = AttackerView(model=view.model, final=view.final, optimiser_state=view.gradient, input_shape=(1, 8, 8))
    assert not clues_of(state).require_gate_layers()[0].inputs_stood_still


def test_a_whole_training_is_refused_unless_the_layers_below_are_frozen() -> None:
    moved = weight_change_view(conv_network(), draw(size=6), frozen=False, steps=3)
    with pytest.raises(Refusal, match="its inputs moved"):
        clues_of(moved).require_gate_layers()
    frozen = weight_change_view(conv_network(), draw(size=6), frozen=True, steps=3)
    assert [layer.name for layer in clues_of(frozen).require_gate_layers()] == ["hidden"]
    assert clues_of(frozen).require_gate_subspace() is clues_of(frozen).require_subspace()


def test_one_step_is_a_gradient() -> None:
    view = weight_change_view(conv_network(), draw(size=6), frozen=False, steps=1)
    layer = clues_of(view).require_gate_layers()[0]
    assert (layer.name, layer.inputs_stood_still) == ("hidden", True)


def test_networks_without_such_a_layer_are_refused_with_the_reason() -> None:
    with pytest.raises(Refusal, match="no layer above it is a dense layer"):
        clues_of(view_of(draw(size=6), ConvNet(channels=2), steps=5)).require_gate_layers()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 2))
    with pytest.raises(Refusal, match="and tanh follows it"):
        clues_of(gradient_view(model, draw(size=6))).require_gate_layers()


def test_a_layer_above_a_smooth_one_is_found() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
    assert [layer.name for layer in clues_of(gradient_view(model, draw(size=6))).require_gate_layers()] == ["3"]


def test_a_layer_that_is_used_twice_is_not_taken() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(1, 1, 1)
            self.dense, self.out = nn.Linear(64, 64), nn.Linear(64, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = torch.relu(self.dense(self.first(x).flatten(1)))
            return self.out(torch.relu(self.dense(hidden)))

    with pytest.raises(Refusal):
        clues_of(gradient_view(Shared(), draw(size=6))).require_gate_layers()


def test_the_lowest_gate_layer_of_a_whole_training_is_read_above_convolutions_only() -> None:
    moved = weight_change_view(conv_network(), draw(size=6), frozen=False, steps=3)
    layer = read_lowest_gate_layer(moved, find_evidence(moved)[0])
    assert (layer.name, layer.inputs_stood_still) == ("hidden", False)
    torch.manual_seed(0)
    dense = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
    view = gradient_view(dense, draw(size=6))
    with pytest.raises(Refusal, match="is dense"):
        read_lowest_gate_layer(view, find_evidence(view)[0])
