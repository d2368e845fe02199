"""The max-margin attack: the circle of Haim et al., digits from their final weights, and what it refuses."""

import math
from dataclasses import replace

import pytest
import torch

import exhume
from exhume.attacks import MaxMargin
from exhume.clues.clues import clues_of
from exhume.clues.homogeneity import degree_of_homogeneity
from exhume.core.errors import ExhumeError, Refusal
from exhume.models.mlp import MLP
from exhume.records import AttackerView, Dataset, Split
from exhume.training.recipes import max_margin_recipe, weight_decay_recipe


def on_a_circle(turn: float) -> torch.Tensor:
    angles = torch.arange(6) * 2 * math.pi / 6 + turn
    return 0.8 * torch.stack([angles.cos(), angles.sin()], 1)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_points_on_a_circle_come_out_and_points_between_do_not(seed):
    labels = torch.arange(6) % 2
    data = Dataset(
        name="circle",
        train=Split(inputs=on_a_circle(0.3), labels=labels),
        holdout=Split(inputs=on_a_circle(0.3 + math.pi / 6), labels=labels),
        classes=("even", "odd"),
        bounds=(-1.0, 1.0),
    )
    victim = exhume.train(data, device="cpu", seed=seed, **max_margin_recipe(width=300, steps=2000))
    attack = MaxMargin(
        candidates=12, trials=1, restarts=8, steps=400, input_rate=(0.01, 0.05), multiplier_rate=(0.01, 0.05),
        init_std=(0.1, 0.5), sharpness=(800.0, 830.0), within_span=False, rescale=False, similar=1.1,
        precision="float64",
    )  # fmt: skip
    found = attack.run(replace(victim.view(), initial=None), device="cpu")
    near, null = (torch.cdist(split.inputs, found.inputs).amin(1) for split in (data.train, data.holdout))
    assert float(near.max()) < 1e-2
    assert float(null.median()) > 0.1
    # What edges fix are the six points and nothing else, and the attacker can tell.
    assert len(found.diagnostics["edges_met"]) == found.diagnostics["determined_by_edges"] == 6
    sure = found.inputs[:6]
    assert float(torch.cdist(sure, data.train.inputs).amin(1).max()) < 1e-3


@pytest.fixture(scope="module")
def ten_digits():
    data = exhume.load("digits", classes="all", size=20, test=0)
    return data, exhume.train(
        data, device="cpu", **weight_decay_recipe(loss="ce", weight_decay=1e-3, width=80, steps=1500)
    )


QUICK = MaxMargin(trials=4, trial_steps=50, winners=1, restarts=2, steps=300)


def test_the_final_weights_alone_say_how_many_images_there_were(ten_digits):
    data, victim = ten_digits
    span = clues_of(replace(victim.view(), initial=None)).span
    assert span is not None
    assert span.rank == 20
    inputs = torch.cat([victim.view().to_model(data.train.inputs).flatten(1), torch.ones(20, 1)], 1).double()
    outside = inputs - inputs @ span.basis @ span.basis.T
    assert float((outside.norm(dim=1) / inputs.norm(dim=1)).max()) < 1e-2


def test_digits_stand_out_from_strangers(ten_digits):
    data, victim = ten_digits
    strangers = exhume.load("digits", classes="all", size=400, test=0).holdout
    found = QUICK.run(replace(victim.view(), initial=None), device="cpu")
    audit = exhume.evaluate(found, replace(data, holdout=strangers))
    assert audit.relative.auc > 0.7
    assert audit.relative.levels[0].chance < 0.01
    low, high = victim.bounds
    assert float(found.inputs.min()) >= low
    assert float(found.inputs.max()) <= high


def test_an_untrained_network_gives_nothing_away(ten_digits):
    data, victim = ten_digits
    view = replace(victim.view(), final=victim.initial, initial=None)
    found = replace(QUICK, candidates=20, trials=1, steps=100).run(view, device="cpu")
    audit = exhume.evaluate(found, data)
    assert audit.relative.levels[0].chance > 0.01


def test_an_interrupted_search_ends_the_same(ten_digits, tmp_path):
    _, victim = ten_digits
    view = replace(victim.view(), initial=None)
    attack = replace(QUICK, steps=75)
    whole = attack.run(view, seed=2, device="cpu")

    for stage, place in (("settings, round 2 of 2", 25), ("recover", 50)):

        def stop(heard, done, total, note="", stage=stage, place=place):
            if heard == stage and done >= place:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            attack.run(view, seed=2, device="cpu", progress=stop, checkpoint=tmp_path / "attack.safetensors")
    with pytest.raises(ExhumeError, match="other settings or data"):
        attack.run(view, seed=3, device="cpu", checkpoint=tmp_path / "attack.safetensors")
    resumed = attack.run(view, seed=2, device="cpu", checkpoint=tmp_path / "attack.safetensors")
    assert replace(resumed, seconds=0.0) == replace(whole, seconds=0.0)
    assert not list(tmp_path.iterdir())


def test_the_search_reports_what_it_chose_by(ten_digits):
    _, victim = ten_digits
    found = replace(QUICK, steps=50).run(replace(victim.view(), initial=None), device="cpu")
    trials, chosen = found.diagnostics["trials"], found.diagnostics["settings"]
    assert len(trials) == 4
    assert len(chosen) == 1
    finalists = [trial for trial in trials if trial["rounds"] == 2]
    assert len(finalists) == 2
    assert min(finalists, key=lambda trial: trial["residual"])["settings"] == chosen[0]
    assert "no training input" in found.diagnostics["chosen_by"]


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (MLP(width=8), "'layer2' has a bias"),
        (MLP(width=8, bias="first", activation="gelu"), "gelu is not piecewise linear"),
    ],
)
def test_it_refuses_networks_that_are_not_homogeneous(model, reason):
    module = model.build((1, 4, 4), 1)
    weights = {name: weight + 0.1 for name, weight in module.state_dict().items()}
    view = AttackerView(model=module, final=weights, input_shape=(1, 4, 4))
    with pytest.raises(Refusal, match=reason):
        MaxMargin(candidates=4).run(view, device="cpu")


def test_homogeneous_networks_are_recognised():
    for depth in (0, 1, 2):
        module = MLP(width=8, depth=depth, bias="first").build((1, 4, 4), 2, torch.Generator().manual_seed(0))
        view = AttackerView(model=module, final=module.state_dict(), input_shape=(1, 4, 4))
        assert degree_of_homogeneity(view) == depth + 1
    module = exhume.ConvNet(channels=4, bias=False).build((1, 8, 8), 2)
    assert degree_of_homogeneity(AttackerView(model=module, final=module.state_dict(), input_shape=(1, 8, 8))) == 3


def test_convolutional_networks_can_be_attacked():
    data = exhume.load("digits", classes="odd-even", size=4, test=0)
    model = exhume.ConvNet(channels=4, depth=1, bias=False)
    victim = exhume.train(data, device="cpu", **max_margin_recipe(model=model, steps=300))
    attack = MaxMargin(candidates=6, trials=2, trial_steps=5, winners=1, restarts=1, steps=40)
    found = attack.run(replace(victim.view(), initial=None), device="cpu")
    assert found.inputs.shape == (6, 1, 8, 8)
    assert found.history[-1] < found.history[0]


def test_bad_settings_are_refused():
    with pytest.raises(ExhumeError, match=r"init_std.0 should be greater than 0"):
        MaxMargin(init_std=(0.0, 1.0))
    with pytest.raises(ExhumeError, match="restarts should be greater than 0"):
        MaxMargin(restarts=0)
    published = MaxMargin.published(restarts=3)
    assert (published.sharpness, published.upper_layers, published.edges) == ((10.0, 500.0), 1.0, False)
