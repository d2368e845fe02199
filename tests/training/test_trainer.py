"""Training from end to end on bundled digits: every option, the record, and the flow."""

import dataclasses
import math

import pytest
import torch

from exhume.core.errors import ExhumeError
from exhume.data import load
from exhume.models.convnet import ConvNet
from exhume.models.mlp import MLP
from exhume.models.resnet import ResNet
from exhume.records import Split, Victim
from exhume.training import Training, accuracy, predict, train
from tests.training.digit_victims import BINARY, SMALL, TEN, change_cosine, have_same_weights, weight_change


@pytest.mark.parametrize(
    ("data", "settings"),
    [
        (BINARY, {}),
        (BINARY, {"loss": "huber"}),
        (BINARY, {"loss": "bce"}),
        (BINARY, {"loss": "ce"}),
        (BINARY, {"optimiser": "adam"}),
        (BINARY, {"batch_size": 5, "loss": "bce"}),
        (BINARY, {"batch_size": 4, "optimiser": "adam", "loss": "huber"}),
        (BINARY, {"momentum": 0.0}),
        (BINARY, {"precision": "float64", "stop_loss": 1e-18}),
        (BINARY, {"linearised": True}),
        (BINARY, {"linearised": True, "loss": "bce", "stop_loss": 0.05}),
        (BINARY, {"linearised": True, "batch_size": 6, "stop_loss": 1e-4}),
        (TEN, {"stop_loss": 1e-6}),
        (TEN, {"loss": "ce", "stop_loss": 1e-2}),
    ],
)
def test_every_option_trains_digits_to_the_loss_it_stops_at(data, settings):
    victim = train(data, model=SMALL, device="cpu", **settings)
    stop = victim.training["stop_loss"]
    assert victim.result["ended_by"] == "loss"
    assert victim.result["loss"] <= stop * 1.01
    assert victim.result["accuracy"] == 1.0 == accuracy(victim, data.train)
    assert accuracy(victim, data.test) > (0.6 if data is BINARY else 0.3)


@pytest.mark.parametrize(
    "architecture",
    [
        MLP(width=64, parameterisation="ntk"),
        MLP(width=64, parameterisation="torch"),
        MLP(width=64, parameterisation="small-first-layer", bias="first"),
        MLP(width=64, activation="tanh", depth=3),
        MLP(depth=0),
        ConvNet(channels=8),
        ResNet(channels=4, blocks=(1, 1)),
    ],
)
def test_the_fast_schedule_fits_every_architecture(architecture):
    victim = train(BINARY, model=architecture, device="cpu", stop_loss=1e-4)
    assert victim.result["ended_by"] == "loss"
    assert victim.result["steps"] < 5000


def test_tables_can_be_trained_on():
    data = load("breast-cancer", size=20)
    victim = train(data, model=SMALL, device="cpu", stop_loss=1e-3)
    assert accuracy(victim, data.train) == 1.0
    assert accuracy(victim, data.test) > 0.8


def test_the_record_repeats_the_training():
    victim = train(BINARY, model=SMALL, device="cpu", batch_size=5, epochs=20, stop_loss=0.0)
    again = train(BINARY, model=victim.architecture, device="cpu", **victim.training)
    assert have_same_weights(victim, again)
    assert again.training == victim.training
    assert Training(**victim.training).describe() == victim.training


def test_the_seed_decides_everything():
    one, two, other = (
        train(BINARY, model=SMALL, device="cpu", batch_size=5, steps=30, seed=seed) for seed in (1, 1, 2)
    )
    assert have_same_weights(one, two)
    assert not have_same_weights(one, other)
    rebuilt = SMALL.build(BINARY.input_shape, 1, torch.Generator().manual_seed(1)).state_dict()
    assert all(torch.equal(rebuilt[name], one.initial[name]) for name in rebuilt)


def test_a_victim_survives_its_file(tmp_path):
    victim = train(BINARY, model=SMALL, device="cpu", steps=20)
    victim.save(tmp_path / "victim.safetensors")
    assert Victim.load(tmp_path / "victim.safetensors") == victim


@pytest.mark.parametrize("settings", [{"momentum": 0.9}, {"optimiser": "adamw", "batch_size": 4}])
def test_the_optimisers_state_is_kept_when_asked_for(tmp_path, settings):
    victim = train(BINARY, model=SMALL, device="cpu", steps=20, keep_optimiser_state=True, **settings)
    state = victim.optimiser_state
    assert state.first_moment.keys() == victim.final.keys()
    assert state.slot == ("exp_avg" if "optimiser" in settings else "momentum_buffer")
    assert victim.view().optimiser_state == state
    victim.save(tmp_path / "victim.safetensors")
    assert Victim.load(tmp_path / "victim.safetensors") == victim
    assert train(BINARY, model=SMALL, device="cpu", steps=20, **settings).optimiser_state is None


def test_zero_steps_leave_the_network_unchanged():
    for linearised in (False, True):
        victim = train(BINARY, model=SMALL, device="cpu", steps=0, linearised=linearised)
        assert weight_change(victim).abs().max() == 0.0
        assert victim.result["ended_by"] == "steps"


def test_the_fast_schedule_follows_the_flow_of_the_papers():
    """The paper's steps are too small for a test, so they are taken 400 times larger: still far below the fast ones."""
    data = load("digits", classes="odd-even", size=6)
    fast = train(data, model=SMALL, device="cpu", stop_loss=1e-6)
    paper = Training(schedule="paper").resolve(examples=6, fast_lr=lambda: math.nan)
    settings = paper.describe() | {"lr": 400 * paper.lr, "steps": 50_000, "stop_loss": 1e-6}
    slow = train(data, model=SMALL, device="cpu", **settings)
    assert slow.training["lr"] < fast.training["lr"] / 25
    assert slow.result["ended_by"] == "loss"
    assert change_cosine(fast, slow) > 0.999
    assert weight_change(fast).norm() / weight_change(slow).norm() == pytest.approx(1.0, abs=0.01)
    # What the rising momentum is for: a constant one leaves the flow.
    constant = train(data, model=SMALL, device="cpu", stop_loss=1e-6, momentum=0.9)
    assert change_cosine(constant, slow) < 0.99


def test_wide_networks_train_as_if_they_were_linear():
    narrow, wide = (
        change_cosine(
            *(
                train(BINARY, model=MLP(width=width), device="cpu", linearised=lazy, stop_loss=1e-5)
                for lazy in (False, True)
            )
        )
        for width in (64, 1024)
    )
    assert narrow < wide
    assert wide > 0.9


def test_unusable_data_are_refused():
    broken = Split(inputs=torch.full((4, 1, 8, 8), math.nan), labels=torch.tensor([0, 1, 0, 1]))
    with pytest.raises(ExhumeError, match="hold NaN or infinite values"):
        train(dataclasses.replace(BINARY, train=broken), model=SMALL, device="cpu")
    nothing = Split(inputs=torch.zeros(0, 1, 8, 8), labels=torch.zeros(0, dtype=torch.long))
    with pytest.raises(ExhumeError, match="no training examples"):
        train(dataclasses.replace(BINARY, train=nothing), model=SMALL, device="cpu")
    with pytest.raises(ExhumeError, match="no device"):
        train(BINARY, model=SMALL, device="abacus")


def test_soft_targets_are_trained_on():
    soft = torch.linspace(-0.8, 0.8, 12)[:, None]
    data = dataclasses.replace(BINARY, train=dataclasses.replace(BINARY.train, targets=soft))
    victim = train(data, model=SMALL, device="cpu", stop_loss=1e-8)
    assert torch.allclose(predict(victim, data.train.inputs), soft, atol=1e-2)
