"""The bilevel attack: it matches weights, approaches them from any start, resumes, and refuses with a reason."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import exhume
from exhume.attacks import Bilevel
from exhume.attacks.bilevel.starts import Mixture, Noise, another_partition, ground_truth
from exhume.cli import main
from exhume.core.errors import ExhumeError, Refusal
from exhume.records import AttackerView, Outcome
from exhume.training.losses import LOSSES

RECIPE = {
    "loss": "ce",
    "lr": 0.3,
    "momentum": 0.85,
    "stop_loss": 0.0,
    "patience": 0,
    "precision": "float64",
    "device": "cpu",
}


@pytest.fixture(scope="module")
def data():
    return exhume.load("digits", classes="all", size=20, test=0)


@pytest.fixture(scope="module")
def affine(data):
    return exhume.train(data, model=exhume.MLP(depth=0), weight_decay=0.03, steps=400, **RECIPE)


@pytest.fixture(scope="module")
def hidden(data):
    return exhume.train(data, model=exhume.MLP(width=24, depth=1), weight_decay=0.03, steps=400, **RECIPE)


QUICK = Bilevel(candidates=20, steps=6)


def test_weights_match_from_the_ground_truth(data, affine):
    found = Bilevel(start=ground_truth(data), steps=3).run(affine.view(), device="cpu")
    assert found.diagnostics["parameter_distance"] < 1e-6
    assert found.outcome is Outcome.CONVERGED
    assert found.diagnostics["start_is_oracle"]
    assert "no attacker has" in found.message
    assert exhume.evaluate(found, data).train.exact == 20


def test_training_on_the_candidates_reproduces_the_weights(data, affine):
    """The victim's own trainer, which knows nothing of the attack, ends near the target on the attack's images."""
    start = another_partition(data)
    found = Bilevel(start=start, steps=30, learning_rate=0.08, box_weight=0.0).run(affine.view(), device="cpu")
    labels = torch.arange(20) % 10
    again = replace(data, train=replace(data.train, inputs=found.inputs, labels=labels))
    retrained = exhume.train(again, model=exhume.MLP(depth=0), weight_decay=0.03, steps=400, **RECIPE)
    both = [torch.cat([weight.flatten() for weight in one.final.values()]) for one in (retrained, affine)]
    distance = float((both[0] - both[1]).norm() / both[1].norm())
    assert distance == pytest.approx(found.diagnostics["parameter_distance"], rel=1e-3)
    assert distance < 0.5 * found.diagnostics["parameter_distance_of_start"]


@pytest.mark.parametrize("lower", ["auto", "stationary"])
@pytest.mark.parametrize("network", ["affine", "hidden"])
def test_every_start_approaches_the_weights(data, network, lower, request):
    view = replace(request.getfixturevalue(network).view(), initial=None)
    for start in (Noise(), Mixture(first=ground_truth(data), second=Noise(), share=0.5)):
        attack = replace(QUICK, start=start, lower=lower, lower_steps=5)
        found = attack.run(view, device="cpu")
        assert found.diagnostics["parameter_distance"] < found.diagnostics["parameter_distance_of_start"]


def test_the_lower_level_may_begin_at_the_initial_weights(data):
    short = {"steps": 12, "momentum": 0.9, "lr": 0.2} | {k: v for k, v in RECIPE.items() if k not in ("lr", "momentum")}
    victim = exhume.train(data, model=exhume.MLP(width=16, depth=1), weight_decay=0.0, **short)
    settings = {
        "lower": "unrolled",
        "lower_start": "initial",
        "lower_steps": 12,
        "lower_rate": 0.2,
        "lower_momentum": 0.9,
    }
    attack = Bilevel(start=ground_truth(data), steps=2, **settings)
    found = attack.run(victim.view(), device="cpu")
    assert found.diagnostics["parameter_distance"] < 1e-6, "a simulated training repeats the real one"
    with pytest.raises(Refusal, match="no initial weights"):
        attack.run(replace(victim.view(), initial=None), device="cpu")


def test_any_module_and_any_loss_function_can_be_attacked(data):
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.SiLU(), nn.Flatten(), nn.Linear(72, 10))
    view = AttackerView(model=model, final=model.state_dict(), input_shape=(1, 8, 8), training={"weight_decay": 0.1})

    def squares(outputs, targets):
        return (outputs - targets).square().mean()

    found = replace(QUICK, loss=squares, lower_steps=4, steps=8).run(view, device="cpu")
    assert found.history[-1] < found.history[0]


def test_an_interrupted_run_ends_with_the_same_result(affine, tmp_path):
    view, file = affine.view(), tmp_path / "state.safetensors"
    attack = replace(QUICK, steps=30, lower="unrolled", lower_steps=2)
    whole = attack.run(view, device="cpu")

    def stop(stage, done, total, note=""):
        if done >= 25:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attack.run(view, device="cpu", progress=stop, checkpoint=file)
    assert file.exists()
    again = attack.run(view, device="cpu", checkpoint=file)
    assert torch.equal(again.inputs, whole.inputs)
    with pytest.raises(ExhumeError, match="other settings"):
        replace(attack, learning_rate=0.5).run(view, device="cpu", checkpoint=file)


@pytest.mark.parametrize(
    ("settings", "facts", "reason"),
    [
        ({}, {}, "its loss is not known"),
        ({}, {"loss": "ce"}, "weight_decay"),
        ({}, {"loss": "ce", "weight_decay": 0.0}, "weight_decay"),
        ({"candidates": None}, {"loss": "ce", "weight_decay": 0.1}, "how many inputs"),
        ({"labels": (0, 1)}, {"loss": "ce", "weight_decay": 0.1}, "2 labels for 20"),
        ({"candidates": 2, "labels": (0, 12)}, {"loss": "ce", "weight_decay": 0.1}, "10 classes"),
    ],
)
def test_missing_facts_are_named_in_the_refusal(affine, settings, facts, reason):
    with pytest.raises(Refusal, match=reason):
        replace(QUICK, **settings).check(replace(affine.view(), training=facts))


@pytest.mark.parametrize(
    "settings",
    [{"weight_decay": 0.0}, {"steps": 0}, {"lower_momentum": 1.0}, {"learning_rate": float("inf")}],
)
def test_bad_settings_are_refused(settings):
    with pytest.raises(ExhumeError):
        Bilevel(**settings)


def test_audits_omit_it_until_its_settings_are_given(affine):
    assessments = {one.attack: one for one in exhume.assess(affine.view())}
    assert assessments["bilevel"].applies.value == "does not apply"
    assert "set candidates" in assessments["bilevel"].reasons[0]
    (assessed,) = exhume.assess(affine.view(), {"bilevel": QUICK})
    assert assessed.applies.value == "applies with caveats"
    assert "proves nothing" in assessed.reasons[0]


def test_the_command_line_runs_the_attack(tmp_path, capsys):
    run = str(tmp_path / "run")
    train = ["train", "--data=digits", "--classes=all", "--size=10", "--depth=0", "--loss=ce", "--weight-decay=0.05"]
    assert main([*train, "--steps=200", f"--out={run}", "--device=cpu", "--quiet"]) == 0
    settings = ["--set=candidates=10", "--set=steps=5", "--set=start=noise"]
    assert main(["attack", run, "--attack=bilevel", *settings, "--device=cpu"]) == 0
    assert "nothing here is proven" in " ".join(capsys.readouterr().out.split())
    assert main(["attack", run, "--attack=bilevel", "--set=start=nowhere.npz", "--device=cpu"]) == 2


def test_every_loss_has_a_lower_level():
    data = exhume.load("digits", classes="odd-even", size=4, test=0)
    for loss in LOSSES:
        model = exhume.MLP(depth=0).build(data.input_shape, 2 if loss == "ce" else 1)
        view = AttackerView(model=model, final=model.state_dict(), input_shape=(1, 8, 8))
        found = replace(QUICK, candidates=4, loss=loss, weight_decay=0.1).run(view, device="cpu")
        assert found.history[-1] < found.history[0], loss
