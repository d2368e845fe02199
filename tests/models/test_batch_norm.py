"""Batch normalisation by the batch: the outputs of training mode, without its memory."""

import pytest
import torch
from torch import nn

from exhume.models.batch_norm import batch_norms, record_statistics, statistics_changed, with_batch_statistics
from exhume.models.resnet import ResNet


@pytest.fixture
def network():
    return ResNet(channels=3, blocks=(1, 1)).build((1, 8, 8), 2, torch.Generator().manual_seed(0))


INPUTS = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def test_outputs_are_those_of_training_mode_and_nothing_is_remembered(network):
    function = with_batch_statistics(network)
    before = {name: weight.clone() for name, weight in network.state_dict().items()}
    outputs = function(INPUTS)
    assert torch.equal(outputs, function(INPUTS))
    assert all(torch.equal(before[name], weight) for name, weight in network.state_dict().items())
    assert not [name for name, _ in function.named_buffers()]
    assert torch.allclose(outputs, network.train()(INPUTS))


def test_dropout_is_off():
    dropping = nn.Sequential(nn.BatchNorm2d(1), nn.Dropout(0.9)).train()
    assert torch.equal(with_batch_statistics(dropping)(INPUTS), with_batch_statistics(dropping[:1])(INPUTS))


def test_running_statistics_show_in_which_mode_a_network_was_trained(network):
    initial = {name: weight.clone() for name, weight in network.state_dict().items()}
    network.eval()(INPUTS)
    assert len(batch_norms(network)) == 6
    assert not statistics_changed(network, initial, network.state_dict())
    network.train()(INPUTS)
    assert statistics_changed(network, initial, network.state_dict())
    assert not statistics_changed(nn.Linear(2, 1), {}, {})


def test_recorded_statistics_are_what_a_step_remembers(network):
    layers = list(batch_norms(network))
    with record_statistics(with_batch_statistics(network), layers) as nothing_ran:
        pass
    assert not nothing_ran
    function = with_batch_statistics(network)
    with record_statistics(function, layers) as recorded:
        function(INPUTS)
    function(2 * INPUTS)  # after the context, nothing is recorded
    for layer in batch_norms(network).values():
        layer.momentum = 1.0
    network.train()(INPUTS)
    for name, layer in batch_norms(network).items():
        assert torch.allclose(recorded[name], torch.cat([layer.running_mean, layer.running_var]), rtol=1e-4, atol=1e-6)
