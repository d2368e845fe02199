"""Facts about the attacked network."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from exhume.evaluation.network import UNLABELLED, kernel_movement, network_findings, threat_model
from exhume.records import AttackerView
from exhume.training import accuracy
from tests.auditing.audited_networks import digits, trained


def test_accuracy_is_the_share_of_right_classes() -> None:
    view, data = trained(), digits()
    outputs = view.module(view.final)(data.holdout.inputs)
    right = (outputs.argmax(1) == data.holdout.labels).double().mean().item()
    findings = network_findings(view, replace(data, test=None))
    assert findings["test_accuracy"] == right == accuracy(view, data.holdout)
    assert findings["train_accuracy"] == 1.0


def test_targets_that_are_not_classes_have_no_accuracy_and_unknown_initial_weights_no_kernel_distance() -> None:
    regression = replace(digits(), classes=UNLABELLED)
    assert network_findings(trained(), regression).keys() == {"kernel_distance"}
    assert network_findings(replace(trained(), initial=None), regression) == {}


@pytest.mark.parametrize(("width", "expected"), [(8, True), (80_000, False)])
def test_the_kernel_of_a_convolutional_network_is_computed_where_it_takes_seconds(width: int, expected: bool) -> None:
    data = digits()
    layers = (nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, width), nn.ReLU(), nn.Linear(width, 10))
    model = nn.Sequential(*layers)
    view = AttackerView(model=model, final=model.state_dict(), initial=model.state_dict(), input_shape=(1, 8, 8))
    assert ("kernel_distance" in network_findings(view, data)) is expected


def test_the_kernel_moves_with_the_weights() -> None:
    view = trained()
    assert kernel_movement(replace(view, initial=view.final), digits()) < 1e-6
    assert kernel_movement(replace(view, linearised=True), digits()) == 0.0
    assert 0.0 < kernel_movement(view, digits()) < 1.0


def test_the_threat_model_names_what_the_attacker_holds() -> None:
    given = threat_model(trained())
    assert given["initial weights"] is True
    assert given["training inputs"] is given["training labels"] is False
    assert given["value range"] == [0.0, 1.0]
    assert threat_model(replace(trained(), initial=None))["initial weights"] is False
    means = torch.full((1, 1, 1), 0.5)
    assert threat_model(replace(trained(), offset=means))["subtracted before use"] == [0.5]
    assert "shape (1, 8, 8)" in threat_model(replace(trained(), offset=means.expand(1, 8, 8)))["subtracted before use"]
