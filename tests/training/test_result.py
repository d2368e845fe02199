"""The result of a training: loss and accuracy of the final weights, and copies that training does not change."""

import pytest
import torch

from exhume.training import accuracy, train
from exhume.training.losses import LOSSES
from exhume.training.result import copy_weights, measure_result
from tests.training.digit_victims import BINARY, SMALL, TEN


@pytest.mark.parametrize(("loss", "data"), [("mse", TEN), ("ce", TEN), ("bce", BINARY)])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_the_result_is_the_loss_and_accuracy_of_the_final_weights(loss, data, precision):
    victim = train(data, model=SMALL, device="cpu", loss=loss, precision=precision, steps=30)
    objective = LOSSES[loss]
    outputs = victim.view().module(victim.final)(data.to_model(data.train.inputs.to(getattr(torch, precision))))
    targets = objective.targets(data, data.train)
    expected = objective(outputs, targets.to(outputs) if targets.is_floating_point() else targets).item()
    result = measure_result(victim, data, objective, torch.device("cpu"))
    assert result["loss"] == pytest.approx(expected, rel=1e-5)
    assert result["accuracy"] == accuracy(victim, data.train)
    assert result["device"] == "cpu"
    assert {"exhume", "torch"} <= result["versions"].keys()


def test_copies_do_not_follow_the_network():
    network = SMALL.build((1, 8, 8), 1, torch.Generator().manual_seed(0))
    copies = copy_weights(network)
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(1.0)
    assert all(not torch.equal(copies[name], weight) for name, weight in network.state_dict().items())
    assert not any(weight.requires_grad for weight in copies.values())
