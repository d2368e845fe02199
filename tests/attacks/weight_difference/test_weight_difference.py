"""The weight-difference attack: which images it recovers, how runs end and resume, and what it refuses."""

import functools
import os
from dataclasses import replace

import pytest
import torch
from scipy.optimize import linear_sum_assignment

import exhume
from exhume.attacks import Restarted, WeightDifference
from exhume.core.errors import ExhumeError, Refusal
from exhume.core.run_context import RunContext
from exhume.records import Outcome
from tests.attacks.victims import train_mlp

GOOD = 0.01
"""Squared distance per pixel below which a recovery is recognisable."""


@pytest.fixture(scope="module")
def roomy():
    """A network with many units per image, so that most images are recovered."""
    return train_mlp(size=12, width=256)


@pytest.fixture(scope="module")
def small():
    """A network for tests that do not need recovered images."""
    return train_mlp(size=8, width=64)[1]


def matched_distances(found, truth):
    """Return the squared distances per pixel of the best one-to-one matching."""
    distances = torch.cdist(found.inputs.flatten(1).double(), truth.inputs.flatten(1).double()).square()
    distances = distances / truth.inputs[0].numel()
    return distances[linear_sum_assignment(distances.numpy())]


def count_recovered(found, data):
    """Return how many training images and how many held-out images are recovered."""
    return tuple(int((matched_distances(found, truth) < GOOD).sum()) for truth in (data.train, data.holdout))


def test_a_linearised_network_reveals_its_digits():
    data, view = train_mlp(size=12, width=256, linearised=True)
    found = WeightDifference(steps=200).run(view, device="cpu")
    recovered, held_out = count_recovered(found, data)
    assert found.outcome is Outcome.CONVERGED
    assert found.diagnostics["training_size_estimate"] == 12
    assert recovered >= 8
    assert held_out == 0


def test_a_trained_network_reveals_its_digits(roomy):
    data, view = roomy
    found = WeightDifference(steps=200).run(view, device="cpu")
    recovered, held_out = count_recovered(found, data)
    assert recovered >= 8
    assert held_out == 0
    good = torch.cdist(found.inputs.flatten(1), data.train.inputs.flatten(1)).square().amin(1) / 64 < GOOD
    assert found.confidence[good].median() > 2 * found.confidence[~good].median()


def test_ten_classes_reveal_nearly_all_digits():
    data, view = train_mlp(size=10, width=256, classes="all")
    found = WeightDifference(steps=200).run(view, device="cpu")
    recovered, held_out = count_recovered(found, data)
    assert recovered >= 8
    assert held_out == 0
    assert found.duals.shape == (30, 2 * 10)


def test_gradients_at_both_ends_explain_more_than_at_one(small):
    ends = {
        features: float(WeightDifference(steps=80, features=features).run(small, device="cpu").history[-1])
        for features in ("initial", "final", "midpoint", "both")
    }
    assert max(ends["both"], ends["midpoint"]) < min(ends["initial"], ends["final"])


def test_the_subspace_finds_more_in_the_same_steps(roomy):
    data, view = roomy
    inside = WeightDifference(steps=60).run(view, device="cpu")
    outside = WeightDifference(steps=60, within_span=False).run(view, device="cpu")
    assert matched_distances(inside, data.train).median() < matched_distances(outside, data.train).median()
    assert inside.diagnostics["searched_dimensions"] == 11
    assert outside.diagnostics["searched_dimensions"] == 64


def test_natural_units_suit_the_ntk_parameterisation():
    data, view = train_mlp(size=6, width=128, parameterisation="ntk")
    found = WeightDifference(steps=200).run(view, device="cpu")
    assert found.outcome is Outcome.CONVERGED
    assert count_recovered(found, data)[0] >= 3


def test_the_part_of_the_initial_weights_that_decayed_is_taken_into_account():
    data, view = train_mlp(size=6, width=256, linearised=True)
    decayed = {name: weight - 0.2 * view.initial[name] for name, weight in view.final.items()}
    found = WeightDifference(steps=200).run(replace(view, final=decayed), device="cpu")
    recovered, held_out = count_recovered(found, data)
    assert found.outcome is Outcome.CONVERGED
    assert recovered >= 4
    assert held_out == 0


def test_convolutional_networks_can_be_attacked():
    data = exhume.load("digits", classes="odd-even", size=4, test=0)
    view = exhume.train(data, model=exhume.ConvNet(channels=8, depth=1), device="cpu", steps=100).view()
    with pytest.raises(Refusal, match="set candidates"):
        WeightDifference(steps=2).run(view, device="cpu")
    found = WeightDifference(steps=30, candidates=8).run(view, device="cpu")
    assert found.inputs.shape == (8, 1, 8, 8)
    assert found.history[-1] < found.history[0]


def test_published_settings_are_those_of_the_paper():
    published = WeightDifference.published()
    assert (published.steps, published.learning_rate, published.oversampling) == (80_000, 0.02, 2.0)
    assert (published.sharpness, published.box_weight, published.init_std) == ((10.0, 200.0), 0.1, 0.2)
    assert (published.decay, published.within_span, published.dual_unit) == ("none", False, "averaged")


def test_published_settings_descend(small):
    found = replace(WeightDifference.published(), steps=150).run(small, device="cpu")
    assert len(found) == 16
    assert found.history[-1] < 0.5 * found.history[0]


def stop_at(place):
    """Return a progress callback that interrupts the work."""

    def stop(stage, done, total, note=""):
        if done >= place:
            raise KeyboardInterrupt

    return stop


def test_an_interrupted_attack_ends_with_the_same_result(small, tmp_path):
    attack, file = WeightDifference(steps=60, midway=0.0), tmp_path / "attack.safetensors"
    whole = attack.run(small, seed=3, device="cpu")
    with pytest.raises(KeyboardInterrupt):
        attack.run(small, seed=3, device="cpu", progress=stop_at(30), checkpoint=file)
    with pytest.raises(ExhumeError, match="other settings or data"):
        attack.run(small, seed=4, device="cpu", checkpoint=file)
    with pytest.raises(ExhumeError, match="other settings or data"):
        replace(attack, learning_rate=0.01).run(small, seed=3, device="cpu", checkpoint=file)
    resumed = attack.run(small, seed=3, device="cpu", checkpoint=file)
    assert replace(resumed, seconds=0.0) == replace(whole, seconds=0.0)


SPLITTING = [
    WeightDifference(steps=60, midway=0.0, splits=1),
    WeightDifference(steps=60, midway=0.5, splits=1),
    WeightDifference(steps=60, midway=0.5, splits=3),
    WeightDifference(steps=60, midway=0.5, splits=2, at_once=5),
]


@pytest.mark.parametrize("attack", SPLITTING)
@pytest.mark.parametrize("place", [20, 30, 31])
def test_an_interrupted_attack_with_splits_ends_with_the_same_result(small, tmp_path, attack, place):
    file = tmp_path / "attack.safetensors"
    whole = attack.run(small, seed=3, device="cpu")
    with pytest.raises(KeyboardInterrupt):
        attack.run(small, seed=3, device="cpu", progress=stop_at(place), checkpoint=file)
    resumed = attack.run(small, seed=3, device="cpu", checkpoint=file)
    assert replace(resumed, seconds=0.0) == replace(whole, seconds=0.0)
    assert len(whole) == 24
    assert bool((whole.duals.abs().sum(1) > 0).all())


def test_splits_add_what_half_of_the_candidates_cannot_explain(small):
    plain = WeightDifference(steps=60, midway=0.0).run(small, seed=3, device="cpu")
    split = SPLITTING[0].run(small, seed=3, device="cpu")
    assert len(split) == len(plain) == 24
    assert not torch.equal(split.history, plain.history)
    assert split.history[-1] < 0.5 * split.history[0]
    fewer = WeightDifference(steps=60, midway=0.0, candidates=12).run(small, seed=3, device="cpu")
    assert split.history[-1] < fewer.history[-1]


def test_runs_with_splits_end_as_they_would_alone(small):
    context = RunContext.start(seed=0)
    attack = WeightDifference(steps=20, splits=1, precision="float64")
    together = attack.recover_together([small] * 3, [torch.Generator().manual_seed(n) for n in range(3)], context)
    (alone,) = attack.recover_together([small], [torch.Generator().manual_seed(2)], context)
    torch.testing.assert_close(together[2].inputs, alone.inputs, rtol=0, atol=1e-4)


def test_convolutional_networks_can_be_attacked_with_splits():
    data = exhume.load("digits", classes="odd-even", size=4, test=0)
    view = exhume.train(data, model=exhume.ConvNet(channels=4, depth=1), device="cpu", steps=20).view()
    found = WeightDifference(steps=12, candidates=8, splits=1).run(view, device="cpu")
    chunked = WeightDifference(steps=12, candidates=8, splits=1, at_once=3).run(view, device="cpu")
    assert found.history[-1] < found.history[0]
    torch.testing.assert_close(chunked.history, found.history, rtol=1e-3, atol=1e-6)


def test_steps_that_are_too_large_are_reported(small):
    found = WeightDifference(steps=50, learning_rate=1e30, splits=1).run(small, device="cpu")
    assert found.outcome is Outcome.DIVERGED
    assert "lower the learning rate" in found.message
    assert bool(torch.isfinite(found.inputs).all())


RESTARTED = Restarted(WeightDifference(steps=40), times=3)


@functools.cache
def run_restarts():
    return RESTARTED.run(train_mlp(size=8, width=64)[1], device="cpu")


def test_restarts_keep_the_lowest_objective(small):
    found = run_restarts()
    ends = found.diagnostics["restarts"]["objectives"]
    assert len(set(ends)) == 3
    assert float(found.history[-1]) == min(ends)
    pooled = replace(RESTARTED, keep="all").run(small, device="cpu")
    assert len(pooled) == len(pooled.duals) == len(pooled.confidence) == 3 * len(found)


def test_interrupted_restarts_end_with_the_same_result(small, tmp_path):
    file = tmp_path / "attack.safetensors"
    with pytest.raises(KeyboardInterrupt):
        RESTARTED.run(small, device="cpu", progress=stop_at(60), checkpoint=file)
    resumed = RESTARTED.run(small, device="cpu", checkpoint=file)
    assert replace(resumed, seconds=0.0) == replace(run_restarts(), seconds=0.0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"candidates": 0},
        {"learning_rate": -1.0},
        {"sharpness": (0.0, 10.0)},
        {"oversampling": float("nan")},
        {"oversampling": 0.0},
        {"balance": 2.0},
        {"tolerance": -1.0},
        {"patience": -1},
        {"splits": -1},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong):
    with pytest.raises(ExhumeError):
        WeightDifference(**wrong)


def test_a_subspace_that_does_not_show_is_refused_when_required(small):
    generator = torch.Generator().manual_seed(0)
    noisy = {name: w + 0.1 * torch.randn(w.shape, generator=generator) for name, w in small.final.items()}
    with pytest.raises(Refusal, match="do not show the span"):
        WeightDifference(within_span=True, candidates=4).run(replace(small, final=noisy), device="cpu")


@pytest.mark.skipif("EXHUME_DATA" not in os.environ, reason="MNIST is read from EXHUME_DATA")
def test_mnist_digits_are_recovered():
    data, view = train_mlp("mnist", size=10, width=256)
    found = WeightDifference(steps=250).run(view, device="cpu")
    recovered, held_out = count_recovered(found, data)
    assert recovered >= 7
    assert held_out == 0
