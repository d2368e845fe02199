"""Whether a network computes the same in training as afterwards."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from exhume.models.mlp import MLP
from exhume.models.passes import is_same_in_training


class Dropping(nn.Module):
    """A network that drops values without a module of its own."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 8)

    def forward(self, inputs):
        return functional.dropout(self.layer(inputs), training=self.training)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (MLP(width=8).build((6,), 2, torch.Generator().manual_seed(0)), True),
        (nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 1)), True),
        (nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8)), False),
        (nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.0)), True),
        (Dropping(), False),
        (nn.Embedding(4, 6), False),
    ],
    ids=["dense", "layer norm", "batch norm", "no dropout", "dropout by a function", "no numbers as inputs"],
)
def test_modes_are_told_apart(model, expected):
    assert is_same_in_training(model, (6,)) is expected


def test_nothing_is_changed():
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout()).eval()
    before, state = {name: value.clone() for name, value in model.state_dict().items()}, torch.get_rng_state()
    is_same_in_training(model, (6,))
    assert not model.training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
