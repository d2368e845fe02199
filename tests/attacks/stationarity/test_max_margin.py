"""The max-margin attack: the circle of Haim et al., digits from their final weights, and what it refuses."""

from dataclasses import replace

import pytest
import torch

import exhume
from exhume.attacks import MaxMargin
from exhume.clues.clues import clues_of
from exhume.core.errors import ExhumeError, Refusal
from exhume.models.mlp import MLP
from exhume.records import AttackerView
from exhume.training.recipes import max_margin_recipe
from tests.attacks.stationarity.victims import circle, classifier, digits

CIRCLE = MaxMargin(
    candidates=12, trials=1, restarts=4, steps=300, input_rate=(0.01, 0.05), multiplier_rate=(0.01, 0.05),
    init_std=(0.1, 0.5), sharpness=(800.0, 830.0), within_span=False, rescale=False, similar=1.1, precision="float64",
)  # fmt: skip
QUICK = MaxMargin(trials=4, trial_steps=50, winners=1, restarts=2, steps=200)


def count_near(points, candidates, tolerance=1e-2):
    """Return how many points have a candidate within the tolerance."""
    return int((torch.cdist(points, candidates).amin(1) < tolerance).sum())


def test_points_on_a_circle_are_recovered_and_points_between_are_not():
    data, victim = circle(0)
    found = CIRCLE.run(replace(victim.view(), initial=None), device="cpu")
    # The search depends on rounding, so a point or two may be missed; random candidates reach none.
    assert count_near(data.train.inputs, found.inputs) >= 4
    assert count_near(data.holdout.inputs, found.inputs) == 0
    random = 2 * torch.rand(found.inputs.shape, generator=torch.Generator().manual_seed(0)) - 1
    assert count_near(data.train.inputs, random) <= 1
    # Points where most edges meet are training points. They are not certified: six points span no room of their own.
    errors = torch.cdist(found.inputs[: len(found.diagnostics["edges_met"])], data.train.inputs).amin(1)
    assert int((errors < 1e-3).sum()) >= 3
    assert not bool((found.certified[: len(errors)] & (errors > 1e-3)).any())


def test_the_final_weights_show_the_number_of_images_and_their_span():
    view = replace(classifier().view(), initial=None)
    span = clues_of(view).span
    assert span is not None
    assert span.rank == 20
    inputs = torch.cat([view.to_model(digits().train.inputs).flatten(1), torch.ones(20, 1)], 1).double()
    outside = inputs - inputs @ span.basis @ span.basis.T
    assert float((outside.norm(dim=1) / inputs.norm(dim=1)).max()) < 1e-2


def test_training_digits_are_nearer_than_held_out_digits():
    victim = classifier()
    found = QUICK.run(replace(victim.view(), initial=None), device="cpu")
    evaluation = exhume.evaluate(found, digits())
    assert evaluation.relative.auc > 0.65
    assert evaluation.relative.levels[0].chance < 0.01
    low, high = victim.bounds
    assert float(found.inputs.min()) >= low
    assert float(found.inputs.max()) <= high


def test_an_untrained_network_reveals_nothing():
    victim = classifier()
    view = replace(victim.view(), final=victim.initial, initial=None)
    found = replace(QUICK, candidates=20, trials=1, steps=100).run(view, device="cpu")
    assert exhume.evaluate(found, digits()).relative.levels[0].chance > 0.01
    assert not bool(found.certified.any())


@pytest.mark.parametrize("splits", [{}, {"splits": 1}, {"splits": 3}])
def test_an_interrupted_attack_ends_with_the_same_result(tmp_path, splits):
    view, file = replace(classifier().view(), initial=None), tmp_path / "attack.safetensors"
    attack = replace(QUICK, trials=1, restarts=1, steps=50, **splits)
    whole = attack.run(view, seed=2, device="cpu")

    def stop(stage, done, total, note=""):
        if done >= 25:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attack.run(view, seed=2, device="cpu", progress=stop, checkpoint=file)
    with pytest.raises(ExhumeError, match="other settings or data"):
        attack.run(view, seed=3, device="cpu", checkpoint=file)
    resumed = attack.run(view, seed=2, device="cpu", checkpoint=file)
    assert replace(resumed, seconds=0.0) == replace(whole, seconds=0.0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (MLP(width=8), "'layer2' has a bias"),
        (MLP(width=8, bias="first", activation="gelu"), "gelu is not piecewise linear"),
    ],
)
def test_inhomogeneous_networks_are_refused(model, reason):
    module = model.build((1, 4, 4), 1)
    weights = {name: weight + 0.1 for name, weight in module.state_dict().items()}
    view = AttackerView(model=module, final=weights, input_shape=(1, 4, 4))
    with pytest.raises(Refusal, match=reason):
        MaxMargin(candidates=4).run(view, device="cpu")


def test_convolutional_networks_can_be_attacked():
    data = exhume.load("digits", classes="odd-even", size=4, test=0)
    model = exhume.ConvNet(channels=4, depth=1, bias=False)
    victim = exhume.train(data, device="cpu", **max_margin_recipe(model=model, steps=300))
    attack = MaxMargin(candidates=6, trials=2, trial_steps=5, winners=1, restarts=1, steps=40)
    found = attack.run(replace(victim.view(), initial=None), device="cpu")
    assert found.inputs.shape == (6, 1, 8, 8)
    assert found.history[-1] < found.history[0]


def test_published_settings_are_those_of_the_paper():
    published = MaxMargin.published(restarts=3)
    assert (published.sharpness, published.upper_layers, published.edges) == ((10.0, 500.0), 1.0, False)


def test_all_rivals_explain_more_of_the_weights_and_agree_for_two_classes():
    view = replace(classifier().view(), initial=None)
    plain = replace(QUICK, edges=False)
    every = replace(plain, rivals="all")
    left = [min(one.run(view, device="cpu").diagnostics["residuals"]) for one in (plain, every)]
    assert left[1] < left[0] / 2
    two = circle(0)[1].view()
    assert type(every.multipliers(two, 4, None)) is type(plain.multipliers(two, 4, None))


def test_free_labels_find_points_of_both_classes_and_are_refused_for_several():
    data, victim = circle(0)
    found = replace(CIRCLE, free_labels=True, edges=False).run(replace(victim.view(), initial=None), device="cpu")
    near = torch.cdist(found.inputs, data.train.inputs).argmin(1)
    assert set(data.train.labels[near].tolist()) == {0, 1}
    assert found.duals.shape == (len(found), 1)
    assert bool((found.duals > 0).any())
    assert bool((found.duals < 0).any())
    with pytest.raises(Refusal, match="one output"):
        replace(QUICK, free_labels=True).run(replace(classifier().view(), initial=None), device="cpu")
