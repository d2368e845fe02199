"""Simulated training: it lowers the distance, states what it assumed, and refuses with a reason."""

import time
from dataclasses import replace

import pytest
import torch
from torch import nn

import exhume
from exhume.attacks import SimulatedTraining
from exhume.core.errors import Refusal
from exhume.core.run_context import OutOfTime
from exhume.evaluation.distances import cross_correlations
from exhume.records import AttackerView, PublicTraining
from tests.attacks.simulated_training.victims import train_resnet

QUICK = SimulatedTraining(candidates=4, steps=4)


def stating(view, **facts):
    """The view with other public facts."""
    return replace(view, training=PublicTraining(**facts))


def test_images_of_a_convolutional_network_come_out_and_held_out_images_do_not():
    data = exhume.load("digits", classes="0,1,2,3", size=4, test=0)
    recipe = {"loss": "ce", "lr": 0.3, "momentum": 0.0, "steps": 3, "stop_loss": 0.0, "patience": 0}
    victim = exhume.train(data, model=exhume.ConvNet(channels=16, depth=1), device="cpu", **recipe)
    attack = SimulatedTraining(candidates=4, steps=150, learning_rate=0.05, variation_weight=0.01)
    found = attack.run(victim.view(), seed=0, device="cpu")
    train, null = (
        cross_correlations(found.inputs.double(), split.inputs.double()).amax(0) for split in (data.train, data.holdout)
    )
    assert found.diagnostics["cosine_distance"] < 0.05
    assert float(train.mean()) > 0.9
    assert float(null.mean()) < 0.8
    assert float(found.confidence.min()) > 0.5
    assert not bool(found.certified.any())
    assert found.diagnostics["assumptions"] == []
    assert "nothing here is proven" in found.message


@pytest.mark.parametrize(
    "facts",
    [
        {"optimiser": "adam", "lr": 0.01, "steps": 4, "loss": "ce"},
        {"optimiser": "sgd", "lr": 0.1, "steps": 400, "momentum": 0.9, "weight_decay": 1e-3, "loss": "ce"},
        {"loss": "ce", "batch_size": 2},
    ],
    ids=["adam", "long", "unknown"],
)
def test_any_recipe_can_be_simulated(facts):
    _, victim = train_resnet()
    attack = replace(QUICK, labels="learned", simulated_steps=2, steps=3, norm_weight=0.0, coarse_share=0.4)
    found = attack.run(stating(victim.view(), **facts), device="cpu")
    assert found.history[-1] < found.history[0]
    assert found.diagnostics["rate"] > 0
    assert all(assumption in found.message for assumption in found.diagnostics["assumptions"])
    assert len(found.diagnostics["labels"]) == 4


def test_the_view_may_state_the_training_set_size():
    _, victim = train_resnet()
    view = victim.view()
    with pytest.raises(Refusal, match="how many inputs were trained on; set candidates"):
        SimulatedTraining().check(view)
    told = replace(view, training=replace(view.training, training_size=4))
    SimulatedTraining().check(told)
    assert len(SimulatedTraining(steps=1).run(told, device="cpu")) == 4


def test_a_network_without_batch_statistics_is_simulated_as_it_is():
    data = exhume.load("digits", classes="odd-even", size=4, test=0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.SiLU(), nn.Flatten(), nn.Linear(144, 1)).eval()
    initial = {name: weight.clone() for name, weight in model.state_dict().items()}
    loss = nn.functional.mse_loss(model(data.train.inputs), torch.ones(4, 1))
    for weight, slope in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True):
        weight.data.sub_(0.1 * slope)
    view = AttackerView(model=model, initial=initial, final=model.state_dict(), input_shape=(1, 8, 8))
    found = replace(QUICK, loss=lambda outputs, targets: (outputs - targets).square().mean()).run(view, device="cpu")
    assert found.history.min() < found.history[0]  # a few steps of signs go down, but not in every step
    assert "statistics_decay=None" in found.diagnostics["simulated_training"]


def test_confidence_is_what_a_candidate_explains():
    data, victim = train_resnet(precision="float64")
    view = victim.view()
    attack = SimulatedTraining(labels=tuple(data.train.labels.tolist()), precision="float64", steps=1)
    truth = view.to_model(data.train.inputs.double()).flatten(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "randn", lambda *shape, generator: truth / attack.init_std)
        found = replace(attack, learning_rate=1e-12).run(view, device="cpu")
    assert float(found.confidence.min()) > 0.99, "every training image is needed to explain the change"
    noise = replace(attack, learning_rate=1e-12).run(view, device="cpu")
    assert float(noise.confidence.max()) < 0.6


@pytest.mark.parametrize(
    ("change", "facts", "message"),
    [
        ({}, {"steps": 3}, "its loss is not known; set loss"),
        ({}, {"loss": "ce", "optimiser": "lion"}, "trained with lion"),
        ({"labels": (0, 1)}, {"loss": "ce"}, "2 labels for 4 candidates"),
        ({"labels": (0, 1, 2, 1)}, {"loss": "ce"}, "2 classes, and a label lies outside"),
    ],
)
def test_what_it_cannot_do_is_refused_with_a_reason(change, facts, message):
    _, victim = train_resnet()
    with pytest.raises(Refusal, match=message):
        replace(QUICK, **change).check(stating(victim.view(), **facts))


def test_a_linearised_network_is_refused():
    _, victim = train_resnet()
    with pytest.raises(Refusal, match="linearised"):
        QUICK.check(replace(victim.view(), linearised=True))


def test_the_number_of_steps_fits_the_time_and_a_resumed_run_keeps_it(tmp_path):
    _, victim = train_resnet()
    file, attack = tmp_path / "state.safetensors", replace(QUICK, steps=10_000)
    with pytest.raises(KeyboardInterrupt):
        attack.run(victim.view(), device="cpu", seconds=3.0, checkpoint=file, progress=stop_searching)
    totals: set[int] = set()

    def note(stage, done, total, text=""):
        if stage == "search":
            totals.add(total)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attack.run(victim.view(), device="cpu", seconds=1e6, checkpoint=file, progress=note)
    assert max(totals) < 10_000, "the plan of the first run"


def stop_searching(stage, done, total, text=""):
    if stage == "search" and done == 1:
        raise KeyboardInterrupt


def test_the_deadline_is_met_after_a_single_step(tmp_path):
    _, victim = train_resnet()
    reports = []
    with pytest.raises(OutOfTime):
        QUICK.run(victim.view(), device="cpu", seconds=0.0, progress=lambda *report: reports.append(report))
    assert len(reports) == 1


def test_images_survive_a_deadline_before_their_confidence():
    _, victim = train_resnet()

    def wait_for_the_deadline(stage, done, total, text=""):
        if stage == "confidence":
            time.sleep(max(0.0, deadline - time.monotonic()) + 0.01)

    deadline = time.monotonic() + 3.0
    found = replace(QUICK, steps=1).run(
        victim.view(), device="cpu", seconds=3.0, keep_partial=True, progress=wait_for_the_deadline
    )
    assert len(found) == 4
    assert not bool(found.confidence.any())
