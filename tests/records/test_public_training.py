"""Public facts about a training: those of a model card, and nothing that determines initial weights or data."""

import dataclasses
import json

import pytest
import safetensors
import torch
from hypothesis import given
from hypothesis import strategies as st

import exhume
from exhume.core.errors import ExhumeError
from exhume.core.storage import load_bundle, save_bundle
from exhume.models.mlp import MLP
from exhume.records import AttackerView, PublicTraining
from exhume.records.public_training import FACTS, SECRETS, SPELLINGS
from exhume.training import Training

SEEDS = (736_413, 920_881)
"""Numbers long enough not to occur in a file by chance."""
STEPS = 3

stated = st.fixed_dictionaries(
    {},
    optional={
        "loss": st.sampled_from(["mse", "ce"]),
        "weight_decay": st.floats(0, 1),
        "batch_size": st.integers(1, 512),
        "epochs": st.integers(0, 100),
        "augmentation": st.sampled_from(["flips", True]),
        "licence": st.text(max_size=5),
        "gpus": st.lists(st.integers(), max_size=2),
    },
)


@pytest.fixture(scope="module")
def victims():
    """Two victims that differ only by their seeds, and so by initial weights, data, name of the data and result."""

    def train(seed):
        data = exhume.load("digits", classes="odd-even", size=6, seed=seed, test=0)
        data = dataclasses.replace(data, name=f"secret-{seed}")
        return exhume.train(data, model=MLP(width=5), device="cpu", lr=0.1, steps=STEPS, seed=seed)

    return [train(seed) for seed in SEEDS]


def without_weights(view):
    """Everything that a view holds besides weights and the offset that users subtract, as text."""
    kept = {
        f.name: getattr(view, f.name)
        for f in dataclasses.fields(view)
        if f.name not in ("initial", "final", "offset", "model")
    }
    return repr(kept) + repr(view.model)


def test_a_view_without_initial_weights_does_not_determine_start_or_data(victims):
    views = [dataclasses.replace(victim.view(), initial=None, offset=None) for victim in victims]
    first, second = map(without_weights, views)
    assert first == second
    for seed, victim in zip(SEEDS, victims, strict=True):
        assert victim.training["seed"] == seed
        for secret in (str(seed), victim.dataset, repr(victim.result["loss"])):
            assert secret not in first


def test_a_learning_rate_is_stated_with_one_digit():
    # All digits of a rate that was fitted to the initial weights and the data would be a trace of them.
    assert PublicTraining.from_record({"lr": 0.0679698003036218}).lr == 0.07
    assert PublicTraining.from_record({"lr": None}).lr is None


def test_the_model_of_a_view_does_not_carry_the_initial_weights(victims):
    for victim in victims:
        inside = victim.view().model.state_dict()
        assert not torch.equal(inside["layer1.weight"], victim.initial["layer1.weight"])


def test_a_saved_view_holds_no_secret(victims, tmp_path):
    contents = []
    for seed, victim in zip(SEEDS, victims, strict=True):
        path = tmp_path / f"{len(contents)}.safetensors"
        dataclasses.replace(victim.view(), initial=None).save(path)
        content = path.read_bytes()
        for secret in (str(seed), victim.dataset, json.dumps(victim.result["loss"]), "seed", "secret", "result"):
            assert secret.encode() not in content
        with safetensors.safe_open(path, framework="pt") as file:
            contents.append(file.metadata())
            assert not any(name.startswith("initial/") for name in file.keys())  # noqa: SIM118
    assert contents[0] == contents[1]


def test_a_view_states_what_a_model_card_does(victims):
    facts = victims[0].view().training.facts()
    assert facts["loss"] == "mse"
    assert facts["optimiser"] == "sgd"
    assert facts["lr"] == 0.1
    assert facts["steps"] == STEPS
    assert facts["weight_decay"] == 0.0
    assert facts["precision"] == "float32"
    assert facts.keys() <= set(FACTS)


def test_every_public_setting_of_a_training_has_a_field():
    """A new setting of a training is public or not by decision: it has a field, or is named here."""
    kept_by_owner = {"seed", "schedule", "momentum_rise", "stop_loss", "patience", "linearised", "keep_optimiser_state"}
    assert {f.name for f in dataclasses.fields(Training)} - set(FACTS) == kept_by_owner


@given(facts=stated)
def test_facts_are_stored_as_they_were_stated(facts):
    training = PublicTraining.from_facts(facts)
    assert training.facts() == facts
    assert PublicTraining.from_facts(training.facts()) == training


def test_facts_without_a_field_are_kept_as_other_facts():
    training = PublicTraining.from_facts({"optimizer": "adam", "licence": "MIT"})
    assert (training.optimiser, training.other) == ("adam", {"licence": "MIT"})


@pytest.mark.parametrize("name", [*SECRETS, *(name for name, meant in SPELLINGS.items() if meant in SECRETS)])
def test_a_secret_is_refused_with_the_reason(name):
    with pytest.raises(ExhumeError, match=f"does not hold the {SPELLINGS.get(name, name)} of") as refusal:
        PublicTraining.from_facts({"loss": "mse", name: 3})
    assert "omit it" in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("facts", [{"weight_decay": "some"}, {"lr": float("nan")}, {"batch_size": 0}, {"loss": 3}])
def test_values_that_do_not_fit_are_refused(facts):
    with pytest.raises(ExhumeError, match=f"PublicTraining: {next(iter(facts))}"):
        PublicTraining.from_facts(facts)


def test_a_fact_with_a_field_is_not_stated_twice():
    with pytest.raises(ExhumeError, match="state it as optimiser"):
        PublicTraining(other={"optimizer": "adam"})


def test_a_view_converts_a_mapping(victims):
    view = dataclasses.replace(victims[0].view(), training={"loss": "ce", "licence": "MIT"})
    assert view.training == PublicTraining(loss="ce", other={"licence": "MIT"})
    with pytest.raises(ExhumeError, match="does not hold the seed"):
        dataclasses.replace(view, training={"seed": 0})


def test_a_view_saved_with_its_seed_by_an_earlier_version_loads_without_it(victims, tmp_path):
    path = tmp_path / "view.safetensors"
    victims[0].view().save(path)
    values, tensors = load_bundle(path, "view")
    save_bundle(path, "view", values | {"training": dict(victims[0].training)}, tensors)
    loaded = AttackerView.load(path)
    assert "seed" not in loaded.training.facts()
    assert loaded.training.loss == "mse"
    assert str(SEEDS[0]) not in repr(loaded)
