"""Recipes that stand for real trainings: exact where they can be repeated, of the same length in time elsewhere."""

import math

import pytest
import torch

from exhume.attacks.simulated_training.recipe import count_steps, fit_rate, plan_recipe
from exhume.core.errors import Refusal
from exhume.hypergradients import AdamRule, MomentumRule
from exhume.records import PublicTraining


def plan(simulated_steps=10, candidates=8, **facts):
    return plan_recipe(PublicTraining(**facts), candidates=candidates, simulated_steps=simulated_steps)


def test_a_short_training_is_repeated_as_stated():
    recipe = plan(optimiser="sgd", lr=0.05, momentum=0.9, steps=7, weight_decay=0.01)
    assert (recipe.lower.steps, recipe.lower.rate, recipe.lower.rule) == (7, 0.05, MomentumRule(momentum=0.9))
    assert recipe.weight_decay == 0.01
    assert recipe.is_repeated
    assert recipe.assumptions == ()


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_fewer_steps_go_as_far_along_a_constant_slope(momentum):
    recipe = plan(optimiser="sgd", lr=0.01, momentum=momentum, steps=4000, simulated_steps=400)

    def travel(rule, rate, steps):
        state = rule.begin(torch.zeros(1, dtype=torch.float64))
        for step in range(steps):
            state = rule.advance(state, torch.ones(1, dtype=torch.float64), rate, step)
        return float(state[0])

    real = travel(MomentumRule(momentum=momentum), 0.01, 4000)
    assert travel(recipe.lower.rule, recipe.lower.rate, 400) == pytest.approx(real, rel=0.01)
    assert not recipe.is_repeated
    assert "4000 steps are simulated in 400" in recipe.assumptions[0]


def test_adam_remembers_for_the_same_time():
    recipe = plan(optimiser="Adam", lr=1e-3, steps=100, momentum=0.8)
    assert recipe.lower.rate == pytest.approx(1e-2)
    assert isinstance(recipe.lower.rule, AdamRule)
    assert recipe.lower.rule.mean_decay == pytest.approx(0.8**10)
    assert recipe.lower.rule.square_decay == pytest.approx(0.999**10)


def test_decoupled_weight_decay_leaves_the_gradient_alone():
    recipe = plan(optimiser="adamw", lr=1e-3, steps=5, weight_decay=0.1)
    assert recipe.weight_decay == 0.0
    assert recipe.lower.rule == AdamRule(decoupled_decay=0.1)


def test_what_the_view_does_not_state_is_assumed_in_words():
    recipe = plan(batch_size=2, epochs=3)
    assert recipe.lower.steps == 10
    assert not recipe.is_repeated
    said = " ".join(recipe.assumptions)
    assert "taken to be SGD" in said
    assert "mini-batches of 2 is unknown" in said
    assert "12 steps are simulated in 10" in said
    assert "does not state the learning rate" in plan(optimiser="sgd", steps=5).assumptions[0]
    assert "does not state the number of steps" in plan(optimiser="sgd", lr=0.1).assumptions[0]


def test_running_statistics_are_forgotten_at_the_same_pace():
    training = PublicTraining(optimiser="sgd", lr=0.1, steps=30)
    lower = plan_recipe(training, candidates=8, simulated_steps=10, follows_statistics=True).lower
    assert lower.statistics_decay == pytest.approx(0.9**3)


def test_other_optimisers_are_refused():
    with pytest.raises(Refusal, match="trained with lion; set optimiser"):
        plan(optimiser="lion")


def test_steps_are_counted_from_epochs():
    assert count_steps(PublicTraining(epochs=3, batch_size=4), 10) == 9
    assert count_steps(PublicTraining(epochs=3), 10) == 3
    assert count_steps(PublicTraining(steps=7, epochs=3), 10) == 7
    assert count_steps(PublicTraining(), 10) is None


@pytest.mark.parametrize("guess", [1e-6, 0.3, 40.0])
def test_a_rate_is_fitted_from_any_guess(guess):
    def measure(rate):
        return 5 * rate**0.5 if rate < 10 else math.inf

    assert fit_rate(measure, 4.0, guess) == pytest.approx(0.64, rel=0.01)


def test_a_rate_beyond_which_training_diverges_is_not_passed():
    assert fit_rate(lambda rate: rate if rate < 2 else math.nan, 100.0, 0.1) == pytest.approx(2.0, rel=0.01)
    assert math.isfinite(fit_rate(lambda rate: 0.0, 1.0, 0.1))
