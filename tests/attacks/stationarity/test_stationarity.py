"""The stationarity attack: any loss with weight decay, multipliers free or tied to it, and what fails without."""

from dataclasses import replace

import pytest
import torch

import exhume
from exhume.attacks import Stationarity
from exhume.core.errors import ExhumeError, Refusal
from exhume.training.recipes import weight_decay_recipe
from tests.attacks.stationarity.victims import digits, regression

TIED = Stationarity(multiplier="tied", trials=1, restarts=2, steps=250)


def run(attack, victim):
    found = attack.run(replace(victim.view(), initial=None), device="cpu")
    return min(found.diagnostics["residuals"]), exhume.evaluate(found, digits()).relative.auc


def test_regression_reveals_its_digits_with_weight_decay_and_not_without():
    residual, auc = run(TIED, regression(3e-3))
    assert residual < 0.2
    assert auc > 0.65
    residual_without, auc_without = run(replace(TIED, weight_decay=3e-3), regression(0.0))
    assert residual_without > 0.3
    assert auc_without < auc


def test_a_loss_function_is_as_good_as_its_name():
    view = replace(regression(3e-3).view(), initial=None)
    short = replace(TIED, trials=1, restarts=1, steps=50, candidates=20)

    def half_squares(outputs, targets):
        return 0.5 * (outputs - targets).square().mean()

    named, own = (replace(short, loss=loss).run(view, device="cpu") for loss in ("mse", half_squares))
    assert torch.allclose(named.inputs, own.inputs, atol=1e-4)


def power_loss(power):
    """Return a new function of the same name on every call, as new processes would."""

    def own_loss(outputs, targets):
        return (outputs - targets).abs().pow(power).mean()

    return own_loss


def test_a_search_with_a_loss_function_resumes_in_another_process(tmp_path):
    view = replace(regression(3e-3).view(), initial=None)
    short, place = replace(TIED, restarts=1, steps=75, candidates=20), tmp_path / "attack.safetensors"
    whole = replace(short, loss=power_loss(2)).run(view, device="cpu")

    def stop(stage, done, total, note=""):
        if done >= 50:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replace(short, loss=power_loss(2)).run(view, device="cpu", progress=stop, checkpoint=place)
    with pytest.raises(ExhumeError, match="other settings or data"):
        replace(short, loss=power_loss(4)).run(view, device="cpu", checkpoint=place)
    resumed = replace(short, loss=power_loss(2)).run(view, device="cpu", checkpoint=place)
    assert replace(resumed, seconds=0.0) == replace(whole, seconds=0.0)


def test_a_search_that_ends_among_its_trials_returns_what_they_found():
    view, stages = replace(regression(3e-3).view(), initial=None), []
    attack = replace(TIED, trials=4, winners=1, trial_steps=20, candidates=20)

    def report(stage, done, total, note=""):
        stages.append(stage)

    found = attack.run(view, device="cpu", seconds=0.0, keep_partial=True, progress=report)
    assert len(found) > 0
    assert set(stages) == {"settings, round 1 of 2"}


def test_loss_functions_differ_by_name_and_values_in_the_repr():
    def of_three(outputs, targets):
        return (outputs.reshape(-1, 3) - targets).square().mean()

    assert "of_three" in repr(Stationarity(loss=of_three))
    assert repr(Stationarity(loss=of_three)) != repr(Stationarity(loss=power_loss(2)))


@pytest.mark.parametrize("loss", ["mse", "huber", "bce", "ce"])
def test_multipliers_can_be_tied_to_every_loss(loss):
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


def test_free_multipliers_can_be_split():
    view = replace(regression(3e-3).view(), initial=None)
    attack = Stationarity(trials=1, restarts=2, steps=60, splits=1)
    found = attack.run(view, device="cpu")
    assert replace(attack.run(view, device="cpu"), seconds=0.0) == replace(found, seconds=0.0)
    assert found.history[-1] < 0.5 * found.history[0]


def test_multipliers_tied_to_a_loss_cannot_be_split():
    with pytest.raises(ExhumeError, match="need multiplier='free'"):
        Stationarity(multiplier="tied", splits=1)


def test_multipliers_tied_to_an_unknown_loss_are_refused():
    view = replace(regression(3e-3).view(), training={})
    with pytest.raises(Refusal, match="need to know it"):
        TIED.run(view, device="cpu")
    with pytest.raises(Refusal, match="unknown loss 'foo'; set loss to mse, bce, ce, huber, or"):
        TIED.run(replace(view, training={"loss": "foo"}), device="cpu")
    with pytest.raises(ExhumeError, match="weight_decay should be greater than 0"):
        Stationarity(weight_decay=0.0)
