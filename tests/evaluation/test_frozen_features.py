"""Attacks above frozen layers recover features, which are compared with features of the data."""

from dataclasses import replace

import pytest
import torch

import exhume
from exhume.attacks import GateCertificate
from exhume.core.errors import DataError
from exhume.evaluation import evaluate
from exhume.evaluation.frozen_features import as_layer_inputs, features_of
from exhume.records import Outcome, Reconstruction
from tests.auditing.audited_networks import digits, trained_above_frozen_features


def test_evaluate_and_audit_agree_on_frozen_features() -> None:
    view, data, attack = trained_above_frozen_features(), digits(), GateCertificate()
    audited = exhume.audit(view, data, attacks=[attack], device="cpu").evaluations["gate-certificate"]
    evaluated = evaluate(audited.found, data, victim=view)
    assert evaluated == audited
    assert evaluated.train is not None
    assert evaluated.holdout is not None
    assert evaluated.train.examples.shape == (8, 48)
    assert evaluated.dataset == f"{data.name}, as layer 3 sees it"
    assert evaluated.train.good > evaluated.holdout.good
    assert 0 <= evaluated.network["test_accuracy"] <= 1


def test_features_are_what_the_lower_layers_compute() -> None:
    view, inputs = trained_above_frozen_features(), digits().train.inputs
    weight, bias = view.final["1.weight"], view.final["1.bias"]
    assert torch.allclose(features_of(view, "3", inputs), torch.tanh(inputs.flatten(1) @ weight.T + bias), atol=1e-6)
    nothing = replace(digits(), holdout=replace(digits().holdout, inputs=inputs[:0], labels=torch.zeros(0).long()))
    assert as_layer_inputs(nothing, view, "3").holdout.inputs.shape == (0, 48)


def test_errors_of_features_are_relative_to_the_range_of_all_of_them() -> None:
    view, data = trained_above_frozen_features(), digits()
    model = view.module(view.final)
    with torch.no_grad():
        model.get_parameter("1.weight")[0] *= 1e-6  # a feature that hardly varies
    steady = replace(view, model=model, final=model.state_dict(), initial=model.state_dict())
    features = as_layer_inputs(data, steady, "3")
    every = torch.cat([features.train.inputs, features.holdout.inputs])
    assert features.bounds == (float(every.min()), float(every.max()))
    found = Reconstruction(
        inputs=features.train.inputs + 1e-4,
        certified=torch.ones(8, dtype=torch.bool),
        confidence=torch.ones(8),
        outcome=Outcome.PARTIAL,
        diagnostics={"layer": "3"},
    )
    evaluated = evaluate(found, data, victim=steady)
    assert evaluated.false_certificates == 0
    assert evaluated.train is not None
    assert evaluated.train.exact == 8


def test_other_shapes_are_refused() -> None:
    view, data = trained_above_frozen_features(), digits()
    found = GateCertificate().run(view, seed=0, device="cpu")
    with pytest.raises(DataError, match="reconstruction holds inputs of shape"):
        evaluate(found, data)
    with pytest.raises(DataError, match="reconstruction holds inputs of shape"):
        evaluate(replace(found, inputs=found.inputs[:, :7]), data, victim=view)
