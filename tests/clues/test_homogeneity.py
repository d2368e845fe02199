"""The degree of homogeneity: the number of layers where outputs scale with weights, else a reason."""

import pytest
import torch

import exhume
from exhume.clues.homogeneity import degree_of_homogeneity, reason_for_inhomogeneity
from exhume.models.mlp import MLP
from exhume.records import AttackerView


def view_of(architecture, shape=(1, 4, 4), shift=0.0):
    module = architecture.build(shape, 2, torch.Generator().manual_seed(0))
    weights = {name: weight + shift for name, weight in module.state_dict().items()}
    return AttackerView(model=module, final=weights, input_shape=shape)


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_the_degree_is_the_number_of_layers(depth):
    assert degree_of_homogeneity(view_of(MLP(width=8, depth=depth, bias="first"))) == depth + 1


def test_convolutions_without_biases_are_homogeneous():
    assert degree_of_homogeneity(view_of(exhume.ConvNet(channels=4, bias=False), (1, 8, 8))) == 3


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (MLP(width=8), "'layer2' has a bias"),
        (MLP(width=8, bias="first", activation="gelu"), "gelu is not piecewise linear"),
    ],
)
def test_inhomogeneous_networks_have_no_degree_and_a_reason(model, reason):
    view = view_of(model, shift=0.1)
    assert degree_of_homogeneity(view) is None
    assert reason in reason_for_inhomogeneity(view)


def test_a_network_without_outputs_has_no_degree():
    view = view_of(MLP(width=8, bias="first"))
    zeros = {name: torch.zeros_like(weight) for name, weight in view.final.items()}
    assert degree_of_homogeneity(AttackerView(model=view.model, final=zeros, input_shape=(1, 4, 4))) is None
