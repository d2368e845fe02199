"""The assessment: which attacks apply, with which caveats, and why others do not."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from exhume import attacks
from exhume.attacks import GateCertificate, WeightDifference
from exhume.auditing import assess
from exhume.auditing.catalogue import CATALOGUE, by_cost, known_attacks
from exhume.auditing.caveats import not_a_margin_loss
from exhume.clues.clues import clues_of
from exhume.records import Applicability, AttackerView
from tests.auditing.audited_networks import digits, network, trained


def of(view: AttackerView, name: str = "gate-certificate"):
    return next(one for one in assess(view) if one.attack == name)


def test_a_plain_network_can_be_attacked_without_caveats():
    one = of(trained())
    assert one.applies is Applicability.APPLIES
    assert one.reasons == ()
    assert one.settings == repr(GateCertificate())


def test_every_exported_attack_is_assessed_the_cheapest_first():
    names = [one.attack for one in assess(trained())]
    assert names == by_cost()
    assert set(names) == set(known_attacks())
    assert names.index("gate-certificate") < names.index("weight-difference")


def test_an_attack_that_joins_is_assessed_by_itself(monkeypatch: pytest.MonkeyPatch):
    newcomer = type("Newcomer", (WeightDifference,), {})
    monkeypatch.setattr(attacks, "__all__", [*attacks.__all__, "Newcomer"])
    monkeypatch.setattr(attacks, "Newcomer", newcomer, raising=False)
    assert by_cost()[-1] == "newcomer"
    assert of(trained(), "newcomer").applies is Applicability.APPLIES


def test_catalogued_names_have_costs_that_order_them():
    costs = [CATALOGUE[name].cost for name in by_cost() if name in CATALOGUE]
    assert costs == sorted(costs)


def test_without_initial_weights_attacks_on_the_change_do_not_apply():
    view = replace(trained(), initial=None)
    for name in ("gate-certificate", "weight-difference"):
        one = of(view, name)
        assert one.applies is Applicability.DOES_NOT
        assert "initial weights" in one.reasons[0]


def test_adam_is_seen_in_the_weights_and_known_from_the_training():
    one = of(trained("adam"))
    assert one.applies is not Applicability.APPLIES
    assert "Adam" in " ".join(one.reasons)
    assessed = of(replace(trained(), training={"optimiser": "Adam"}), "weight-difference")
    assert assessed.applies is Applicability.WITH_CAVEATS
    assert "adam" in assessed.reasons[0]


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        ({"augmentation": "flips"}, "altered copies"),
        ({"noise_multiplier": 1.1}, "differential privacy"),
        ({"augmentation": False}, None),
        ({"optimiser": "sgd"}, None),
    ],
)
def test_facts_about_the_training_decide_the_caveats(facts, word):
    reasons = " ".join(of(replace(trained(), training=facts)).reasons)
    assert (word in reasons) if word else reasons == ""


@pytest.mark.parametrize(("loss", "is_one"), [("bce", True), ("ce", True), ("mse", False), ("huber", False)])
def test_cross_entropies_maximise_a_margin_and_squares_do_not(loss, is_one):
    remark = not_a_margin_loss(clues_of(replace(trained(), training={"loss": loss})))
    assert (remark is None) is is_one


@pytest.mark.parametrize(
    ("facts", "word"),
    [({}, "not known"), ({"weight_decay": 0}, "without weight decay"), ({"weight_decay": 1e-3}, None)],
)
def test_attacks_on_stationary_points_need_weight_decay(facts, word):
    reasons = " ".join(of(replace(trained(), training=facts), "stationarity").reasons)
    assert (word in reasons) if word else reasons == ""


def test_layers_that_prevent_an_attack_are_named():
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 2), nn.BatchNorm1d(2)
    )
    reasons = " ".join(of(started(model)).reasons)
    assert "Dropout" in reasons
    assert "Batch normalisation" in reasons


def test_other_activations_and_convolutions_do_not_apply():
    gelu = nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 2))
    assert "flat side" in of(started(gelu)).reasons[0]
    convolution = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    assert "not a dense layer" in of(started(convolution)).reasons[0]


def test_coarse_weights_and_large_changes_are_caveats():
    view = trained()
    halved = replace(view, final={name: weight.half() for name, weight in view.final.items()})
    assert clues_of(halved).coarse_weights == "float16"
    far = {name: weight + 3 * weight.norm() * torch.ones_like(weight) for name, weight in view.final.items()}
    assert any("moved by" in reason for reason in of(replace(view, final=far), "weight-difference").reasons)


def test_frozen_features_are_named_as_such():
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 100), nn.Tanh(), nn.Linear(100, 256), nn.ReLU(), nn.Linear(256, 2)
    )
    view = started(model, frozen=("1.weight", "1.bias"))
    one = of(view)
    assert one.applies is Applicability.WITH_CAVEATS
    assert "reads features" in " ".join(one.reasons)


def test_few_units_per_example_are_a_caveat():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 2))
    assert any("units per example" in reason for reason in of(started(model)).reasons)


def started(model: nn.Module, frozen: tuple[str, ...] = ()) -> AttackerView:
    """Train a model for a few steps of plain descent, all but the frozen weights."""
    data = digits()
    initial = {name: weight.clone() for name, weight in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in frozen)
    steps = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.05)
    for _ in range(20):
        steps.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(model.eval()(data.train.inputs), data.train.labels))
        steps.step()
    final = {name: weight.detach().clone() for name, weight in model.state_dict().items()}
    return AttackerView(model=model, initial=initial, final=final, input_shape=(1, 8, 8), bounds=(0.0, 1.0))


def test_an_assessment_does_not_change_the_model():
    view = trained()
    before = {name: weight.clone() for name, weight in view.model.state_dict().items()}
    assess(view)
    assert all(torch.equal(before[name], weight) for name, weight in view.model.state_dict().items())
    assert network() is not view.model
