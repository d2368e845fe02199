"""The training loop: steps as in PyTorch, stops, divergence, and resuming to the bit."""

import dataclasses

import pytest
import torch
from torch import nn

from exhume.core.errors import ExhumeError
from exhume.models.mlp import MLP
from exhume.models.resnet import ResNet
from exhume.training import Training, train
from exhume.training.loop import TrainingLoop
from exhume.training.losses import LOSSES
from tests.training.digit_victims import BINARY, SMALL, have_same_weights


@pytest.mark.parametrize("optimiser", ["sgd", "adam", "adamw"])
def test_weight_decay_and_momentum_mean_what_they_do_in_pytorch(optimiser):
    settings = {"lr": 0.01, "momentum": 0.7, "weight_decay": 0.1, "steps": 25, "precision": "float64"}
    victim = train(BINARY, model=SMALL, device="cpu", optimiser=optimiser, **settings)
    network = victim.view().module(victim.initial).requires_grad_(True)
    inputs = BINARY.to_model(BINARY.train.inputs.double())
    targets = LOSSES["mse"].targets(BINARY, BINARY.train).double()
    theirs = (
        torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.7, weight_decay=0.1)
        if optimiser == "sgd"
        else {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[optimiser](
            network.parameters(), lr=0.01, betas=(0.7, 0.999), weight_decay=0.1
        )
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
    settings = {"steps": 400, "stop_loss": 0.0, "model": SMALL, "device": "cpu"} | settings
    whole = train(BINARY, **settings)
    for step in (100, 300):
        with pytest.raises(StopHereError):
            train(BINARY, checkpoint=path, progress=interrupt_at(step), **settings)
    reports = []
    resumed = train(
        BINARY, checkpoint=path, progress=lambda stage, done, total, note="": reports.append(done), **settings
    )
    assert reports[0] == 300
    assert have_same_weights(whole, resumed)
    assert resumed.result["steps"] == whole.result["steps"] == 400
    finished = train(BINARY, checkpoint=path, **settings)
    assert have_same_weights(whole, finished)


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


def test_a_chosen_learning_rate_is_lowered_until_it_is_stable(monkeypatch):
    monkeypatch.setattr("exhume.training.trainer.fast_lr", lambda *_: 50.0)
    victim = train(BINARY, model=SMALL, device="cpu", stop_loss=1e-4)
    assert victim.result["ended_by"] in ("loss", "plateau"), "it descends to an end, wherever rounding leads"
    assert victim.result["loss"] < 1.0
    assert victim.training["lr"] in [50.0 / 4**power for power in range(1, 6)]
    assert have_same_weights(victim, train(BINARY, model=SMALL, device="cpu", **victim.training))


def test_measuring_the_loss_leaves_running_statistics_alone():
    inputs = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    network = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1))
    settings = Training(batch_size=2, steps=1).resolve(examples=6, fast_lr=lambda: 0.1)
    loop = TrainingLoop(
        network=network,
        inputs=inputs,
        targets=inputs[:, :1],
        objective=LOSSES["mse"],
        settings=settings,
        generator=torch.Generator(),
    )
    before = {name: value.clone() for name, value in network.named_buffers()}
    loop.measure_loss()
    assert all(torch.equal(before[name], value) for name, value in network.named_buffers())
    assert network.training


def test_running_statistics_take_as_many_steps_as_weights(tmp_path):
    model = ResNet(channels=2, blocks=(1,))
    settings = {"model": model, "steps": 3, "lr": 0.1, "stop_loss": 0.0, "device": "cpu"}
    whole = train(BINARY, **settings)
    assert int(whole.final["normalisation.num_batches_tracked"]) == 3
    path = tmp_path / "state.safetensors"
    with pytest.raises(StopHereError):
        train(BINARY, checkpoint=path, progress=interrupt_at(0), **settings)
    assert have_same_weights(whole, train(BINARY, checkpoint=path, **settings))
    assert have_same_weights(whole, train(BINARY, checkpoint=path, **settings)), "a finished training stays as it is"


class FrozenStep:
    """A step as a GPU repeats it: the momentum that it was recorded with stays as it was."""

    def __init__(self, loop):
        self.loop, self.momentum = loop, None

    def __call__(self):
        group = self.loop.optimiser.param_groups[0]
        now = group["momentum"]
        self.momentum = now if self.momentum is None else self.momentum
        group["momentum"] = self.momentum
        self.loop.descend(self.loop.compute_value())
        group["momentum"] = now


@pytest.mark.parametrize("rise", [0, 4])
def test_repeated_steps_have_the_momentum_of_their_time(rise, monkeypatch):
    settings = {"lr": 0.01, "momentum": 0.7, "momentum_rise": rise, "steps": 60, "precision": "float64"}
    plain = train(BINARY, model=SMALL, device="cpu", **settings)
    monkeypatch.setattr(TrainingLoop, "repeat_from_here", lambda loop: setattr(loop, "repeated", FrozenStep(loop)))
    repeated = []

    def can_repeat(loop):
        momentum_at = loop.settings.momentum_at
        steady = loop.step > 0 and loop.step < 60 and momentum_at(loop.step - 1) == momentum_at(loop.step)
        repeated.append(steady)
        return steady and loop.step % 5 > 0

    monkeypatch.setattr(TrainingLoop, "can_repeat", can_repeat)
    again = train(BINARY, model=SMALL, device="cpu", **settings)
    assert sum(repeated) > 30
    assert have_same_weights(plain, again)


def test_only_steps_that_differ_in_the_weights_alone_are_repeated_on_a_gpu():
    class OnGpu(torch.Tensor):
        is_cuda = True

    def loop_at(step, **settings):
        loop = TrainingLoop.__new__(TrainingLoop)
        resolved = Training(**{"momentum": 0.5, "momentum_rise": 0, "steps": 100, "lr": 0.1} | settings)
        loop.inputs, loop.settings, loop.buffers, loop.step = torch.zeros(1).as_subclass(OnGpu), resolved, {}, step
        return loop

    assert loop_at(3).can_repeat()
    assert not loop_at(25).can_repeat()  # the loss is read there
    assert not loop_at(100).can_repeat()  # the end
    assert not loop_at(3, batch_size=4).can_repeat()
    assert not loop_at(3, optimiser="adam").can_repeat()
    assert not loop_at(3, momentum_rise=2).can_repeat()  # the momentum rises
    with_statistics = loop_at(3)
    with_statistics.buffers = {"mean": torch.zeros(1)}
    assert not with_statistics.can_repeat()
