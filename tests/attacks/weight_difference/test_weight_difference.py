"""The weight-difference attack: the published objective, what it recovers, and what it refuses."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from scipy.optimize import linear_sum_assignment

import exhume
from exhume.attacks import Restarted, WeightDifference
from exhume.attacks.weight_difference.problem import WeightChange
from exhume.clues.clues import clues_of
from exhume.clues.search_space import SearchSpace
from exhume.core.errors import ExhumeError, Refusal
from exhume.models.mlp import MLP
from exhume.records import AttackerView, Outcome

FIXTURE = json.loads((Path(__file__).parent / "fixtures" / "weight_difference.json").read_text())
GOOD, FINE = 0.01, 0.001
"""Squared distances a pixel below which a recovery is recognisable, and below which it is a copy."""


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def weights_of(layers):
    """From kernels stored (in, out) to the names and shapes of our MLP."""
    numbered = {f"layer{number + 1}": layers[f"Dense_{number}"] for number in range(3)}
    kernels = {f"{name}.weight": tensor(layer["kernel"]).T.contiguous() for name, layer in numbered.items()}
    return kernels | {f"{name}.bias": tensor(layer["bias"]) for name, layer in numbered.items()}


def view_of(case):
    final = weights_of(case["theta_final"])
    return AttackerView(
        model=MLP(width=8).build((12,), case["outputs"]),
        initial=weights_of(case["theta_initial"]),
        final=final,
        input_shape=(12,),
        bounds=tuple(case["box"]),
    )


@pytest.mark.parametrize("case", FIXTURE["cases"])
def test_value_and_gradients_are_those_of_the_released_code(case):
    view = view_of(case)
    images, duals = tensor(case["images"]), tensor(case["duals"])
    points = [view.final, view.initial] if case["both"] else [view.final]
    raw = torch.stack([duals, tensor(case["duals_at_initial"])] if case["both"] else [duals])
    problem = WeightChange.of(
        view,
        points,
        SearchSpace(12),
        box_weight=0.1,
        sharpness=(case["softplus_beta"],) * 2,
        dual_unit=1 / (len(images) * case["outputs"]),
        dtype=torch.float64,
    )
    value, (to_images, to_duals) = problem.objective((images, raw), tensor(0.3))
    expected = [tensor(case["grad_duals"]), tensor(case["grad_duals_at_initial"])][: len(points)]
    torch.testing.assert_close(value, tensor(case["loss"]), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(to_images, tensor(case["grad_images"]), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(to_duals, torch.stack(expected), rtol=1e-9, atol=1e-9)


def trained(name="digits", size=20, width=256, **settings):
    classes = settings.pop("classes", "odd-even")
    offline = {"data_dir": os.environ["EXHUME_DATA"]} if "EXHUME_DATA" in os.environ else {}
    data = exhume.load(name, classes=classes, size=size, test=0, **offline)
    return data, exhume.train(data, model=MLP(width=width), device="cpu", **settings).view()


@pytest.fixture(scope="module")
def lazy():
    return trained(linearised=True)


@pytest.fixture(scope="module")
def standard():
    return trained()


def matched(found, truth):
    """Squared distances a pixel of the best one-to-one matching."""
    distances = torch.cdist(found.inputs.flatten(1).double(), truth.inputs.flatten(1).double()).square()
    distances = distances / truth.inputs[0].numel()
    return distances[linear_sum_assignment(distances.numpy())]


def counts(found, data):
    """How many training and how many held-out images are recovered."""
    return int((matched(found, data.train) < GOOD).sum()), int((matched(found, data.holdout) < GOOD).sum())


def test_a_linearised_network_gives_its_digits_away(lazy):
    data, view = lazy
    found = WeightDifference(steps=300).run(view, device="cpu")
    recovered, null = counts(found, data)
    assert found.outcome is Outcome.CONVERGED
    assert found.diagnostics["training_size_estimate"] == 20
    assert recovered >= 14
    assert null == 0


def test_a_trained_network_gives_its_digits_away(standard):
    data, view = standard
    found = WeightDifference(steps=300).run(view, device="cpu")
    recovered, null = counts(found, data)
    assert recovered >= 16
    assert null == 0
    good = torch.cdist(found.inputs.flatten(1), data.train.inputs.flatten(1)).square().amin(1) / 64 < GOOD
    assert found.confidence[good].median() > 2 * found.confidence[~good].median()


def test_ten_classes_give_away_more_than_two():
    data, view = trained(classes="all")
    found = WeightDifference(steps=300).run(view, device="cpu")
    recovered, null = counts(found, data)
    assert recovered >= 18
    assert null == 0
    assert found.duals.shape == (60, 2 * 10)


def test_both_ends_explain_more_than_one():
    _, view = trained(size=8, width=128)
    ends = {
        features: float(WeightDifference(steps=150, features=features).run(view, device="cpu").history[-1])
        for features in ("initial", "final", "midpoint", "both")
    }
    assert max(ends["both"], ends["midpoint"]) < min(ends["initial"], ends["final"])


def test_the_true_inputs_and_duals_leave_nothing_of_a_linearised_change(lazy):
    data, view = lazy
    space = SearchSpace.spanned_by(clues_of(view).require_subspace(), torch.float64)
    inputs = view.to_model(data.train.inputs).flatten(1).double()
    free = space.project(inputs)
    torch.testing.assert_close(space.inputs(space.coordinates(free)), inputs, rtol=0, atol=1e-3)
    sharp = (1e6, 1e6)
    problem = WeightChange.of(view, [view.initial], space, box_weight=0.0, sharpness=sharp, dtype=torch.float64)
    change = torch.cat([part.flatten() for part in problem.target])
    columns = []
    for number in range(len(free)):
        duals = torch.zeros(1, len(free), 1, dtype=torch.float64)
        duals[0, number] = 1
        sums = problem.sums(space.coordinates(free), duals, tensor(1e6))[0]
        columns.append(torch.cat([part.flatten() for part in sums]))
    duals = torch.linalg.lstsq(torch.stack(columns, 1), change[:, None]).solution.reshape(1, -1, 1)
    assert float(problem.objective((free, duals), tensor(1.0))[0]) < 1e-5 * problem.size
    confidence = problem.confidence(free, duals)
    assert float(confidence.median()) > 0.99


def test_the_subspace_finds_more_in_the_same_steps(standard):
    data, view = standard
    inside = WeightDifference(steps=60).run(view, device="cpu")
    outside = WeightDifference(steps=60, within_span=False).run(view, device="cpu")
    assert matched(inside, data.train).median() < matched(outside, data.train).median()
    assert inside.diagnostics["searched_dimensions"] == 19
    assert outside.diagnostics["searched_dimensions"] == 64


def test_units_make_the_parameterisation_irrelevant():
    data = exhume.load("digits", classes="odd-even", size=10, test=0)
    for parameterisation in ("standard", "ntk"):
        view = exhume.train(data, model=MLP(width=128, parameterisation=parameterisation), device="cpu").view()
        found = WeightDifference(steps=300).run(view, device="cpu")
        assert found.outcome is Outcome.CONVERGED
        assert counts(found, data)[0] >= 4


def test_what_weight_decay_took_is_taken_into_account():
    data, view = trained(size=6, width=256, linearised=True)
    decayed = {name: weight - 0.2 * view.initial[name] for name, weight in view.final.items()}
    found = WeightDifference(steps=300).run(replace(view, final=decayed), device="cpu")
    recovered, null = counts(found, data)
    assert found.outcome is Outcome.CONVERGED
    assert recovered >= 5
    assert null == 0


def test_a_network_that_is_no_stack_can_be_attacked():
    data = exhume.load("digits", classes="odd-even", size=4, test=0)
    view = exhume.train(data, model=exhume.ConvNet(channels=8, depth=1), device="cpu", steps=200).view()
    with pytest.raises(Refusal, match="set candidates"):
        WeightDifference(steps=2).run(view, device="cpu")
    found = WeightDifference(steps=60, candidates=8).run(view, device="cpu")
    assert found.inputs.shape == (8, 1, 8, 8)
    assert found.history[-1] < found.history[0]


def test_published_settings_are_those_of_the_paper():
    published = WeightDifference.published()
    assert (published.steps, published.learning_rate, published.oversampling) == (80_000, 0.02, 2.0)
    assert (published.sharpness, published.box_weight, published.init_std) == ((10.0, 200.0), 0.1, 0.2)
    assert (published.decay, published.within_span, published.dual_unit) == ("none", False, "averaged")


def test_published_settings_descend(standard):
    _, view = standard
    found = replace(WeightDifference.published(), steps=200).run(view, device="cpu")
    assert len(found) == 40
    assert found.history[-1] < 0.5 * found.history[0]


def test_an_interrupted_attack_ends_the_same(standard, tmp_path):
    _, view = standard
    attack = WeightDifference(steps=100)
    whole = attack.run(view, seed=3, device="cpu")

    def stop(stage, done, total, note=""):
        if done >= 50:
            raise KeyboardInterrupt

    file = tmp_path / "attack.safetensors"
    with pytest.raises(KeyboardInterrupt):
        attack.run(view, seed=3, device="cpu", progress=stop, checkpoint=file)
    with pytest.raises(ExhumeError, match="other settings or data"):
        attack.run(view, seed=4, device="cpu", checkpoint=file)
    with pytest.raises(ExhumeError, match="other settings or data"):
        replace(attack, learning_rate=0.01).run(view, seed=3, device="cpu", checkpoint=file)
    resumed = attack.run(view, seed=3, device="cpu", checkpoint=file)
    assert replace(resumed, seconds=0.0) == replace(whole, seconds=0.0)


def test_steps_that_are_too_large_are_reported_not_returned(standard):
    _, view = standard
    found = WeightDifference(steps=50, learning_rate=1e30).run(view, device="cpu")
    assert found.outcome is Outcome.DIVERGED
    assert "lower the learning rate" in found.message
    assert bool(torch.isfinite(found.inputs).all())


def test_restarts_keep_the_lowest_objective(standard):
    _, view = standard
    found = Restarted(WeightDifference(steps=60), times=3).run(view, device="cpu")
    ends = found.diagnostics["restarts"]["objectives"]
    assert len(set(ends)) == 3
    assert float(found.history[-1]) == min(ends)
    pooled = Restarted(WeightDifference(steps=60), times=3, keep="all").run(view, device="cpu")
    assert len(pooled) == len(pooled.duals) == len(pooled.confidence) == 3 * len(found)


def test_interrupted_restarts_end_the_same(standard, tmp_path):
    _, view = standard
    attack = Restarted(WeightDifference(steps=50), times=3)
    whole = attack.run(view, device="cpu")

    def stop(stage, done, total, note=""):
        if done >= 75:
            raise KeyboardInterrupt

    file = tmp_path / "attack.safetensors"
    with pytest.raises(KeyboardInterrupt):
        attack.run(view, device="cpu", progress=stop, checkpoint=file)
    resumed = attack.run(view, device="cpu", checkpoint=file)
    assert replace(resumed, seconds=0.0) == replace(whole, seconds=0.0)
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
    ],
)
def test_settings_that_cannot_work_are_refused(wrong):
    with pytest.raises(ExhumeError):
        WeightDifference(**wrong)


def test_a_subspace_that_does_not_show_is_refused_when_asked_for(standard):
    _, view = standard
    generator = torch.Generator().manual_seed(0)
    noisy = {name: w + 0.1 * torch.randn(w.shape, generator=generator) for name, w in view.final.items()}
    with pytest.raises(Refusal, match="do not show the span"):
        WeightDifference(within_span=True, candidates=4).run(replace(view, final=noisy), device="cpu")


needs_mnist = pytest.mark.skipif("EXHUME_DATA" not in os.environ, reason="MNIST is read from EXHUME_DATA")


@needs_mnist
def test_mnist_at_both_ends():
    data, view = trained("mnist", size=20, width=512)
    found = WeightDifference(steps=400).run(view, device="cpu")
    recovered, null = counts(found, data)
    assert recovered >= 18
    assert null == 0
