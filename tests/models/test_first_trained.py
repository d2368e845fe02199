"""Which layer training changed first, and what follows it."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from exhume.models.convnet import ConvNet
from exhume.models.mlp import MLP
from exhume.models.structure import first_trained


class Branching(nn.Module):
    """A frozen part no tracer understands, then a head whose output goes two ways."""

    def __init__(self, residual=True):
        super().__init__()
        self.frozen = Untraceable()
        self.head = nn.Linear(6, 6)
        self.out = nn.Linear(6, 2)
        self.residual = residual

    def forward(self, x):
        x = self.head(self.frozen(x).flatten(1))
        return self.out(functional.relu(x) + x) if self.residual else self.out(functional.relu(x))


class Untraceable(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Linear(6, 6)

    def forward(self, x):
        return self.scale(x) if x.sum() > 0 else -self.scale(x)


class Direct(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x * self.weight)


def every(model):
    return {name for name, _ in model.named_parameters()}


def test_the_first_layer_of_a_plain_network():
    model = MLP(width=5).build((1, 2, 2), 1)
    step, following = first_trained(model, every(model))
    assert (step.kind, step.name, step.layer.weight, step.layer.bias) == (
        "dense",
        "layer1",
        "layer1.weight",
        "layer1.bias",
    )
    assert (following.kind, following.name) == ("activation", "relu")


def test_the_first_layer_behind_frozen_ones():
    model = MLP(width=5, depth=3).build((1, 2, 2), 1)
    step, following = first_trained(model, {"layer3.weight", "layer4.bias"})
    assert (step.name, following.name) == ("layer3", "relu")


@pytest.mark.parametrize("residual", [False, True])
def test_a_frozen_part_may_be_anything(residual):
    model = Branching(residual)
    step, following = first_trained(model, {"head.weight", "head.bias", "out.weight"})
    assert step.name == "head"
    assert following is None if residual else following.name == "relu"


def test_dropout_between_layer_and_activation_is_looked_through():
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(), nn.ReLU(), nn.Linear(3, 1))
    assert first_trained(model, every(model))[1].name == "relu"


def test_normalisation_between_layer_and_activation_is_not():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 1))
    assert first_trained(model, every(model))[1].kind == "other"


def test_a_convolution_is_no_dense_layer():
    model = ConvNet(channels=2).build((1, 8, 8), 2)
    assert first_trained(model, every(model))[0].layer is None


def test_a_bare_parameter_is_no_dense_layer():
    model = Direct()
    step, following = first_trained(model, every(model))
    assert (step.kind, step.name, step.layer, following) == ("other", "weight", None, None)
    assert first_trained(model, {"layer.weight"})[0].name == "layer"


def test_what_cannot_be_traced_has_no_first_layer():
    model = Untraceable()
    assert first_trained(model, every(model)) is None


def test_the_last_layer_has_no_follower():
    model = MLP(width=5).build((4,), 1)
    assert first_trained(model, {"layer3.weight"})[1] is None
    assert first_trained(nn.Linear(3, 1), {"weight"})[1] is None
