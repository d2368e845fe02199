"""Settings of a training: what the schedules decide, and what is refused."""

import dataclasses
import math

import pytest

from exhume.core.errors import ExhumeError
from exhume.training import Training


def resolved(examples=100, fast_lr=0.02, **settings):
    return Training(**settings).resolve(examples=examples, fast_lr=lambda: fast_lr)


def test_the_papers_schedule():
    paper = resolved(schedule="paper")
    assert (paper.lr, paper.momentum, paper.momentum_rise) == (pytest.approx(2e-5), 0.9, 0)
    assert (paper.steps, paper.stop_loss, paper.patience) == (1_000_000, 1e-10, 0)


def test_the_fast_schedule():
    fast = resolved()
    assert (fast.lr, fast.momentum, fast.momentum_rise) == (0.02, 0.99, 32)
    assert (fast.steps, fast.stop_loss, fast.patience) == (20_000, 1e-10, 1000)
    assert resolved(loss="ce").stop_loss == 1e-3
    assert resolved(batch_size=10).momentum == 0.9
    assert resolved(optimiser="adam").momentum_rise == 0


def test_given_settings_are_used_unchanged():
    asked = resolved(lr=0.5, momentum=0.8, stop_loss=0.0, patience=7, steps=3)
    assert (asked.lr, asked.momentum, asked.momentum_rise) == (0.5, 0.8, 0)
    assert (asked.stop_loss, asked.patience, asked.steps) == (0.0, 7, 3)


@pytest.mark.parametrize("settings", [{}, {"schedule": "paper"}, {"loss": "ce", "epochs": 3, "batch_size": 7}])
def test_a_resolved_training_resolves_to_itself(settings):
    once = resolved(**settings)
    assert Training(**once.describe()) == once
    assert once.resolve(examples=100, fast_lr=lambda: math.nan) == once


def test_epochs_are_passes_over_the_data():
    assert resolved(epochs=3, batch_size=30).steps == 12
    assert resolved(epochs=3).steps == 3
    assert resolved(batch_size=200).batch_size is None


def test_momentum_rises_and_the_flow_time_adds_up():
    settings = resolved(steps=1000, lr=0.1, momentum=0.9, momentum_rise=10)
    momenta = [settings.momentum_at(step) for step in range(1000)]
    assert momenta[:10] == [0.0] * 10
    assert momenta == sorted(momenta)
    assert momenta[19] == pytest.approx(0.5)
    assert momenta[-1] == 0.9
    assert settings.flow_time() == pytest.approx(sum(0.1 / (1 - momentum) for momentum in momenta))
    assert resolved(linearised=True).flow_time() == math.inf


def test_only_plain_descent_on_squares_has_a_closed_form():
    assert Training(linearised=True).has_closed_form
    for other in ({"loss": "bce"}, {"batch_size": 5}, {"weight_decay": 0.1}, {"optimiser": "adam"}):
        assert not Training(linearised=True, **other).has_closed_form
    assert not Training().has_closed_form


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 3, "epochs": 2}, "either steps or epochs"),
        ({"lr": -0.1}, "lr should be greater than or equal to 0, not -0.1"),
        ({"lr": math.inf}, "lr should be a finite number"),
        ({"batch_size": 0}, "batch_size should be greater than 0"),
        ({"momentum": 1.0}, "momentum should be less than 1"),
        ({"weight_decay": -1.0}, "weight_decay should be greater than or equal to 0"),
        ({"loss": "hinge"}, "loss should be 'mse', 'huber', 'bce' or 'ce', not 'hinge'"),
        ({"precision": "float16"}, "precision should be 'float32' or 'float64'"),
        ({"rate": 0.1}, "has no setting 'rate'"),
        ({"keep_optimiser_state": True, "momentum": 0.0}, "Only an optimiser with momentum"),
        ({"keep_optimiser_state": True, "linearised": True}, "Only an optimiser with momentum"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ExhumeError, match=message) as refusal:
        Training(**settings)
    assert "\n" not in str(refusal.value)


def test_settings_are_frozen_and_described_in_the_order_of_their_fields():
    """Checkpoints and reports depend on names and order."""
    assert list(Training().describe()) == [
        "loss", "optimiser", "schedule", "lr", "momentum", "momentum_rise", "batch_size", "weight_decay", "steps",
        "epochs", "stop_loss", "patience", "linearised", "keep_optimiser_state", "precision", "seed",
    ]  # fmt: skip
    with pytest.raises(dataclasses.FrozenInstanceError):
        Training().lr = 1.0
