"""Facts about the attacked network."""

from dataclasses import replace

import torch

from exhume.evaluation.network import UNLABELLED, kernel_movement, network_findings, threat_model
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
