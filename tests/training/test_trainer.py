"""Training from end to end on bundled digits: every option, the record, the flow, and resuming."""

import dataclasses
import math

import pytest
import torch

from exhume.core.errors import ExhumeError
from exhume.data import load
from exhume.models.convnet import ConvNet
from exhume.models.mlp import MLP
from exhume.records import Split, Victim
from exhume.training import Training, accuracy, predict, train
from exhume.training.losses import LOSSES
from exhume.training.step_size import fast_lr, sharpness

BINARY = load("digits", classes="odd-even", size=12, test=100)
TEN = load("digits", classes="all", size=20, test=100)
SMALL = MLP(width=64, depth=1)


def change(victim: Victim) -> torch.Tensor:
    return torch.cat([(victim.final[name] - victim.initial[name]).flatten().double() for name in victim.final])


def cosine(one: Victim, other: Victim) -> float:
    return torch.nn.functional.cosine_similarity(change(one), change(other), dim=0).item()


def same_weights(one: Victim, other: Victim) -> bool:
    return all(torch.equal(one.final[name], other.final[name]) for name in one.final)


@pytest.mark.parametrize(
    ("data", "settings"),
    [
        (BINARY, {}),
        (BINARY, {"loss": "huber"}),
        (BINARY, {"loss": "bce"}),
        (BINARY, {"loss": "ce"}),
        (BINARY, {"optimiser": "adam"}),
        (BINARY, {"batch_size": 5}),
        (BINARY, {"batch_size": 5, "loss": "bce"}),
        (BINARY, {"batch_size": 4, "optimiser": "adam", "loss": "huber"}),
        (BINARY, {"momentum": 0.0}),
        (BINARY, {"precision": "float64", "stop_loss": 1e-18}),
        (BINARY, {"linearised": True}),
        (BINARY, {"linearised": True, "loss": "bce", "stop_loss": 0.05}),
        (BINARY, {"linearised": True, "batch_size": 6, "stop_loss": 1e-4}),
        (TEN, {"stop_loss": 1e-6}),
        (TEN, {"loss": "ce", "stop_loss": 1e-2}),
        (TEN, {"linearised": True}),
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
    assert same_weights(victim, again)
    assert again.training == victim.training
    assert Training(**victim.training).describe() == victim.training


def test_the_seed_decides_everything():
    one, two, other = (
        train(BINARY, model=SMALL, device="cpu", batch_size=5, steps=30, seed=seed) for seed in (1, 1, 2)
    )
    assert same_weights(one, two)
    assert not same_weights(one, other)
    rebuilt = SMALL.build(BINARY.input_shape, 1, torch.Generator().manual_seed(1)).state_dict()
    assert all(torch.equal(rebuilt[name], one.initial[name]) for name in rebuilt)


def test_a_victim_survives_its_file(tmp_path):
    victim = train(BINARY, model=SMALL, device="cpu", steps=20)
    victim.save(tmp_path / "victim.safetensors")
    assert Victim.load(tmp_path / "victim.safetensors") == victim


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_weight_decay_and_momentum_mean_what_they_do_in_pytorch(optimiser):
    settings = {"lr": 0.01, "momentum": 0.7, "weight_decay": 0.1, "steps": 25, "precision": "float64"}
    victim = train(BINARY, model=SMALL, device="cpu", optimiser=optimiser, **settings)
    network = victim.view().module(victim.initial).requires_grad_(True)
    inputs = BINARY.to_model(BINARY.train.inputs.double())
    targets = LOSSES["mse"].targets(BINARY, BINARY.train).double()
    theirs = (
        torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.7, weight_decay=0.1)
        if optimiser == "sgd"
        else torch.optim.Adam(network.parameters(), lr=0.01, betas=(0.7, 0.999), weight_decay=0.1)
    )
    for _ in range(25):
        theirs.zero_grad()
        (0.5 * (network(inputs) - targets).square().mean()).backward()
        theirs.step()
    for name, weight in network.state_dict().items():
        assert torch.allclose(victim.final[name], weight, atol=1e-12)


def test_weight_decay_ends_on_a_plateau_with_smaller_weights():
    plain, decayed = (
        train(BINARY, model=SMALL, device="cpu", weight_decay=decay, stop_loss=1e-8) for decay in (0.0, 0.02)
    )
    assert decayed.result["ended_by"] == "plateau"
    sizes = [sum(weight.square().sum() for weight in victim.final.values()) for victim in (plain, decayed)]
    assert sizes[1] < 0.5 * sizes[0]


def test_early_stopping_stops_at_the_loss():
    for settings in ({}, {"linearised": True}):
        victim = train(BINARY, model=SMALL, device="cpu", stop_loss=1e-2, **settings)
        assert 0.9e-2 < victim.result["loss"] <= 1.0001e-2


def test_no_steps_leave_the_network_alone():
    for linearised in (False, True):
        victim = train(BINARY, model=SMALL, device="cpu", steps=0, linearised=linearised)
        assert change(victim).abs().max() == 0.0
        assert victim.result["ended_by"] == "steps"


def test_the_fast_schedule_follows_the_flow_of_the_papers():
    """The paper's steps are too small for a test, so they are taken 200 times larger: still far below the fast ones."""
    data = load("digits", classes="odd-even", size=6)
    fast = train(data, model=SMALL, device="cpu", stop_loss=1e-6)
    paper = Training(schedule="paper").resolved(examples=6, fast_lr=lambda: math.nan)
    settings = paper.describe() | {"lr": 200 * paper.lr, "steps": 50_000, "stop_loss": 1e-6}
    slow = train(data, model=SMALL, device="cpu", **settings)
    assert slow.training["lr"] < fast.training["lr"] / 50
    assert slow.result["ended_by"] == "loss"
    assert cosine(fast, slow) > 0.999
    assert change(fast).norm() / change(slow).norm() == pytest.approx(1.0, abs=0.01)
    # What the rising momentum is for: a constant one leaves the flow.
    constant = train(data, model=SMALL, device="cpu", stop_loss=1e-6, momentum=0.9)
    assert cosine(constant, slow) < 0.99


def test_wide_networks_train_as_if_they_were_linear():
    narrow, wide = (
        cosine(
            *(
                train(BINARY, model=MLP(width=width), device="cpu", linearised=lazy, stop_loss=1e-5)
                for lazy in (False, True)
            )
        )
        for width in (64, 1024)
    )
    assert narrow < wide
    assert wide > 0.9


def test_predictions_of_a_linearised_victim_are_those_of_the_expansion():
    victim = train(BINARY, model=SMALL, device="cpu", linearised=True, precision="float64", stop_loss=1e-16)
    targets = LOSSES["mse"].targets(BINARY, BINARY.train).double()
    assert torch.allclose(predict(victim, BINARY.train.inputs), targets, atol=1e-6)
    standard = dataclasses.replace(victim, linearised=False)
    assert not torch.allclose(predict(standard, BINARY.train.inputs), targets, atol=1e-3)


def test_sharpness_is_the_largest_curvature():
    network = SMALL.build((1, 8, 8), 1, torch.Generator().manual_seed(0)).double()
    inputs = BINARY.to_model(BINARY.train.inputs.double())
    outputs = network(inputs)
    rows = [
        torch.cat([g.flatten() for g in torch.autograd.grad(f, network.parameters(), retain_graph=True)])
        for f in outputs
    ]
    jacobian = torch.stack(rows)
    exact = torch.linalg.eigvalsh(jacobian @ jacobian.T)[-1].item() / len(inputs)
    assert sharpness(network, inputs, LOSSES["mse"]) == pytest.approx(exact, rel=0.02)
    assert fast_lr(network, inputs, Training()) == pytest.approx(min(0.3 / exact, 0.1), rel=0.02)


class StopHereError(Exception):
    pass


def interrupt_at(step):
    def listen(stage, done, total, note=""):
        if done == step:
            raise StopHereError

    return listen


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"optimiser": "adam"},
        {"batch_size": 5},
        {"batch_size": 5, "optimiser": "adam", "weight_decay": 1e-3},
        {"batch_size": 4},  # 3 steps an epoch: step 300 begins one
        {"linearised": True, "loss": "bce"},
    ],
)
def test_an_interrupted_training_ends_with_the_same_bits(tmp_path, monkeypatch, settings):
    monkeypatch.setattr("exhume.core.checkpoint.SAVE_SECONDS", 0.0)
    path = tmp_path / "state.safetensors"
    settings = {"steps": 500, "stop_loss": 0.0, "model": SMALL, "device": "cpu"} | settings
    whole = train(BINARY, **settings)
    for step in (100, 300):
        with pytest.raises(StopHereError):
            train(BINARY, checkpoint=path, progress=interrupt_at(step), **settings)
    heard = []
    resumed = train(
        BINARY, checkpoint=path, progress=lambda stage, done, total, note="": heard.append(done), **settings
    )
    assert heard[0] == 300
    assert same_weights(whole, resumed)
    assert resumed.result["steps"] == whole.result["steps"] == 500
    finished = train(BINARY, checkpoint=path, **settings)
    assert same_weights(whole, finished)


def test_a_checkpoint_of_another_training_is_refused(tmp_path):
    path = tmp_path / "state.safetensors"
    settings = {"model": SMALL, "device": "cpu", "checkpoint": path}
    train(BINARY, steps=10, **settings)
    before = path.read_bytes()
    other = dataclasses.replace(BINARY, train=BINARY.holdout)
    for data, changed in ((BINARY, {"steps": 20}), (BINARY, {"steps": 10, "seed": 5}), (other, {"steps": 10})):
        with pytest.raises(ExhumeError, match="belongs to a training with other settings or data"):
            train(data, **settings, **changed)
    with pytest.raises(ExhumeError, match="belongs to a training"):
        train(BINARY, steps=10, model=MLP(width=32), device="cpu", checkpoint=path)
    assert path.read_bytes() == before
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(ExhumeError, match="truncated or not a safetensors file"):
        train(BINARY, steps=10, **settings)


def test_divergence_is_one_sentence_with_advice():
    with pytest.raises(ExhumeError, match="diverged after 1 step; lower its learning rate 50"):
        train(BINARY, model=SMALL, device="cpu", lr=50.0)


def test_a_learning_rate_nobody_asked_for_is_lowered_until_it_holds(monkeypatch):
    monkeypatch.setattr("exhume.training.trainer.fast_lr", lambda *_: 50.0)
    victim = train(BINARY, model=SMALL, device="cpu", stop_loss=1e-4)
    assert victim.result["ended_by"] == "loss"
    assert victim.training["lr"] in [50.0 / 4**power for power in range(1, 6)]
    assert same_weights(victim, train(BINARY, model=SMALL, device="cpu", **victim.training))


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
