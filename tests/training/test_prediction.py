"""Predictions: of networks and of their linearisation, in chunks, for victims and for views."""

import dataclasses
import math

import pytest
import torch

from exhume.records import Split
from exhume.training import accuracy, predict, train
from exhume.training.losses import LOSSES
from tests.training.digit_victims import BINARY, SMALL, TEN


def test_predictions_of_a_linearised_victim_are_those_of_the_expansion():
    victim = train(BINARY, model=SMALL, device="cpu", linearised=True, precision="float64", stop_loss=1e-16)
    targets = LOSSES["mse"].targets(BINARY, BINARY.train).double()
    assert torch.allclose(predict(victim, BINARY.train.inputs), targets, atol=1e-6)
    standard = dataclasses.replace(victim, linearised=False)
    assert not torch.allclose(predict(standard, BINARY.train.inputs), targets, atol=1e-3)


@pytest.mark.parametrize("linearised", [False, True])
def test_chunks_change_nothing(monkeypatch, linearised):
    victim = train(BINARY, model=SMALL, device="cpu", linearised=linearised, steps=20, precision="float64")
    whole = predict(victim, BINARY.test.inputs)
    monkeypatch.setattr("exhume.training.prediction.CHUNK", 7)
    torch.testing.assert_close(predict(victim, BINARY.test.inputs), whole)


def test_a_view_predicts_as_its_victim():
    victim = train(BINARY, model=SMALL, device="cpu", steps=50)
    assert torch.equal(predict(victim.view(), BINARY.test.inputs), predict(victim, BINARY.test.inputs))
    assert accuracy(victim.view(), BINARY.test) == accuracy(victim, BINARY.test)


def test_a_linearised_view_without_initial_weights_is_evaluated_by_its_final_weights():
    victim = train(BINARY, model=SMALL, device="cpu", linearised=True, steps=50)
    view = dataclasses.replace(victim.view(), initial=None)
    with torch.no_grad():
        expected = view.module(view.final)(view.to_model(BINARY.test.inputs))
    torch.testing.assert_close(predict(view, BINARY.test.inputs), expected)


def test_accuracy_counts_classes_by_sign_or_by_the_largest_output():
    for data in (BINARY, TEN):
        victim = train(data, model=SMALL, device="cpu", steps=100)
        outputs = predict(victim, data.test.inputs)
        expected = [int(row[0] > 0) if len(row) == 1 else int(row.argmax()) for row in outputs]
        right = sum(one == other for one, other in zip(expected, data.test.labels.tolist(), strict=True))
        assert accuracy(victim, data.test) == pytest.approx(right / len(data.test))


def test_an_empty_split_has_no_accuracy():
    victim = train(BINARY, model=SMALL, device="cpu", steps=0)
    empty = Split(inputs=torch.zeros(0, 1, 8, 8), labels=torch.zeros(0, dtype=torch.long))
    assert math.isnan(accuracy(victim, empty))
