"""Built networks: layers, biases, the images they take, and how each parameterisation draws its weights."""

import itertools
import math

import pytest
import torch
from torch import nn

from exhume.core.errors import ExhumeError
from exhume.models.activations import ACTIVATIONS
from exhume.models.convnet import ConvNet
from exhume.models.mlp import MLP


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("bias", ["all", "first", "none"])
def test_mlp_has_the_layers_and_biases_it_says(depth, bias):
    weights = MLP(width=5, depth=depth, bias=bias).build((2, 3), 4).state_dict()
    sizes = [6] + [5] * depth + [4]
    for index, (inputs, units) in enumerate(itertools.pairwise(sizes), start=1):
        assert weights[f"layer{index}.weight"].shape == (units, inputs)
        assert (f"layer{index}.bias" in weights) == (bias == "all" or (bias == "first" and index == 1))


def test_standard_weights_are_truncated_lecun_normals():
    weights = MLP(width=512, depth=1).build((400,), 1, seeded()).state_dict()
    first = weights["layer1.weight"]
    assert first.std().item() == pytest.approx(400**-0.5, rel=0.01)
    assert first.abs().max().item() <= 2.0 / math.sqrt(400) / 0.8796 + 1e-6
    assert not weights["layer1.bias"].any()


def test_ntk_parameterisation_draws_unit_normals_and_scales_on_use():
    network = MLP(width=512, depth=1, parameterisation="ntk").build((400,), 1, seeded())
    assert network.layer1.weight.std().item() == pytest.approx(1.0, rel=0.01)
    inputs = torch.randn(50, 400, generator=seeded(1))
    assert network.layer1(inputs).std().item() == pytest.approx(1.0, rel=0.05)


def test_small_first_layer_is_small_and_the_rest_is_as_pytorch_draws_it():
    weights = MLP(width=300, parameterisation="small-first-layer").build((200,), 3, seeded()).state_dict()
    assert weights["layer1.weight"].std().item() == pytest.approx(1e-4, rel=0.02)
    assert weights["layer1.bias"].std().item() == pytest.approx(1e-4, rel=0.2)
    assert weights["layer2.weight"].abs().max().item() == pytest.approx(300**-0.5, rel=0.01)
    assert weights["layer2.bias"].std().item() == pytest.approx(300**-0.5 / math.sqrt(3), rel=0.1)


def test_torch_parameterisation_follows_nn_linear():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = nn.Linear(200, 3000)
    ours = MLP(width=3000, depth=1, parameterisation="torch").build((200,), 1, seeded()).layer1
    for name in ("weight", "bias"):
        a, b = getattr(theirs, name), getattr(ours, name)
        assert b.std().item() == pytest.approx(a.std().item(), rel=0.05)
        assert b.abs().max().item() == pytest.approx(a.abs().max().item(), rel=0.01)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_builds(activation):
    assert MLP(width=4, activation=activation).build((3,), 2)(torch.zeros(1, 3)).shape == (1, 2)


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 25, 25), (1, 28, 28), (3, 32, 32)])
def test_images_from_eight_by_eight_up_are_taken(shape):
    network = ConvNet(channels=4).build(shape, 3, seeded())
    assert network(torch.zeros(2, *shape)).shape == (2, 3)


def test_outputs_depend_on_their_own_input_only():
    network = ConvNet(channels=4).build((1, 8, 8), 3, seeded())
    inputs = torch.randn(5, 1, 8, 8, generator=seeded())
    assert torch.allclose(network(inputs)[2:3], network(inputs[2:3]), atol=1e-6)


def test_inputs_that_are_no_images_or_too_small_are_refused():
    with pytest.raises(ExhumeError, match="takes images"):
        ConvNet().build((30,), 1)
    with pytest.raises(ExhumeError, match="too small to halve 4 times"):
        ConvNet(depth=4).build((1, 8, 8), 1)
