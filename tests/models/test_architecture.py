"""Architectures: their randomness, and their descriptions in files."""

import pytest
import torch

from exhume.core.errors import RecordError
from exhume.models.architecture import Architecture
from exhume.models.convnet import ConvNet
from exhume.models.mlp import MLP


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("architecture", [MLP(width=8), ConvNet(channels=4), MLP(width=8, parameterisation="torch")])
def test_weights_come_from_the_generator_alone(architecture):
    with torch.random.fork_rng():
        first = architecture.build((1, 8, 8), 2, seeded()).state_dict()
        torch.manual_seed(99)
        second = architecture.build((1, 8, 8), 2, seeded()).state_dict()
        other = architecture.build((1, 8, 8), 2, seeded(1)).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize("architecture", [MLP(width=7, depth=3, bias="first", activation="gelu"), ConvNet(depth=1)])
def test_description_rebuilds_the_architecture(architecture):
    assert Architecture.from_description(architecture.describe()) == architecture


def test_unknown_description_is_refused():
    with pytest.raises(RecordError, match="unknown architecture"):
        Architecture.from_description({"kind": "Transformer"})
    with pytest.raises(RecordError, match="do not fit"):
        Architecture.from_description({"kind": "MLP", "colour": "red"})
    with pytest.raises(RecordError, match="do not fit"):
        Architecture.from_description({"kind": "MLP", "width": -3})
