"""The stationarity attack: any loss with weight decay, multipliers free or tied to it, and what fails without."""

from dataclasses import replace

import pytest
import torch

import exhume
from exhume.attacks import Stationarity
from exhume.core.errors import ExhumeError, Refusal
from exhume.training.recipes import weight_decay_recipe

TIED = Stationarity(multiplier="tied", trials=1, restarts=2, steps=250)


def trained(weight_decay, loss="mse"):
    data = exhume.load("digits", classes="all", size=20, test=0)
    recipe = weight_decay_recipe(loss=loss, weight_decay=weight_decay, width=80, steps=1500, lr=0.3)
    strangers = exhume.load("digits", classes="all", size=400, test=0).holdout
    return replace(data, holdout=strangers), exhume.train(data, device="cpu", **recipe)


@pytest.fixture(scope="module")
def decayed():
    return trained(3e-3)


def audit_of(attack, data, victim):
    found = attack.run(replace(victim.view(), initial=None), device="cpu")
    return found, exhume.evaluate(found, data)


def test_regression_gives_its_digits_away_with_weight_decay_and_not_without(decayed):
    found, audit = audit_of(TIED, *decayed)
    assert found.diagnostics["residuals"][0] < 0.2
    assert audit.relative.auc > 0.65
    _, without = audit_of(replace(TIED, weight_decay=3e-3), *trained(0.0))
    assert without.relative.auc < audit.relative.auc
    assert without.relative.levels[0].recovered < audit.relative.levels[0].recovered


def test_a_loss_of_the_users_own_is_as_good_as_its_name(decayed):
    _, victim = decayed
    view = replace(victim.view(), initial=None)
    short = replace(TIED, trials=1, restarts=1, steps=50, candidates=20)

    def half_squares(outputs, targets):
        return 0.5 * (outputs - targets).square().mean()

    named, own = (replace(short, loss=loss).run(view, device="cpu") for loss in ("mse", half_squares))
    assert torch.allclose(named.inputs, own.inputs, atol=1e-4)


def squares_of(power):
    """Return a new function on every call, of one name, as new processes would."""

    def own_loss(outputs, targets):
        return (outputs - targets).abs().pow(power).mean()

    return own_loss


def test_a_search_tied_to_the_users_own_loss_can_be_taken_up_by_another_process(decayed, tmp_path):
    _, victim = decayed
    view = replace(victim.view(), initial=None)
    short, place = replace(TIED, restarts=1, steps=75, candidates=20), tmp_path / "attack.safetensors"
    whole = replace(short, loss=squares_of(2)).run(view, device="cpu")

    def stop(stage, done, total, note=""):
        if done >= 50:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replace(short, loss=squares_of(2)).run(view, device="cpu", progress=stop, checkpoint=place)
    with pytest.raises(ExhumeError, match="other settings or data"):
        replace(short, loss=squares_of(4)).run(view, device="cpu", checkpoint=place)
    resumed = replace(short, loss=squares_of(2)).run(view, device="cpu", checkpoint=place)
    assert replace(resumed, seconds=0.0) == replace(whole, seconds=0.0)


def test_a_loss_for_another_number_of_outputs_is_told_apart_all_the_same():
    def of_three(outputs, targets):
        return (outputs.reshape(-1, 3) - targets).square().mean()

    assert "of_three" in repr(Stationarity(loss=of_three))
    assert repr(Stationarity(loss=of_three)) != repr(Stationarity(loss=squares_of(2)))


@pytest.mark.parametrize("loss", ["mse", "huber", "bce", "ce"])
def test_every_loss_can_be_tied_to(loss):
    data = exhume.load("digits", classes="odd-even", size=4, test=0)
    victim = exhume.train(data, device="cpu", **weight_decay_recipe(loss=loss, width=32, steps=200))
    attack = Stationarity(multiplier="tied", candidates=4, trials=2, trial_steps=20, winners=1, restarts=1, steps=60)
    found = attack.run(replace(victim.view(), initial=None), device="cpu")
    assert found.history[-1] < found.history[0]


def test_it_needs_no_homogeneous_network():
    data = exhume.load("digits", classes="odd-even", size=4, test=0)
    model = exhume.MLP(width=16, activation="tanh")
    victim = exhume.train(data, device="cpu", **weight_decay_recipe(model=model, steps=200))
    attack = Stationarity(candidates=4, trials=1, restarts=1, steps=60)
    found = attack.run(replace(victim.view(), initial=None), device="cpu")
    assert found.history[-1] < found.history[0]


def test_it_refuses_ties_to_a_loss_that_nobody_named(decayed):
    _, victim = decayed
    view = replace(victim.view(), training={})
    with pytest.raises(Refusal, match="need to know it"):
        TIED.run(view, device="cpu")
    with pytest.raises(Refusal, match="unknown loss 'foo'; set loss to mse, bce, ce, huber, or"):
        TIED.run(replace(view, training={"loss": "foo"}), device="cpu")
    with pytest.raises(ExhumeError, match="weight_decay should be greater than 0"):
        Stationarity(weight_decay=0.0)
