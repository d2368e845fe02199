"""Exact, certified recovery: what it handles, what it refuses, and that it certifies nothing that was not there."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from exhume.attacks import Attack, GateCertificate
from exhume.core.errors import ExhumeError, Refusal
from exhume.models.convnet import ConvNet
from exhume.models.mlp import MLP
from exhume.records import AttackerView, Outcome, Reconstruction
from tests.attacks.gates.victims import draw, plainly_trained, random_change, score, view_of, with_final

BRIEF = GateCertificate(rounds=24, patience=6)
"""As patient as these small networks need."""


def recovered(view, seed=0, attack=BRIEF) -> Reconstruction:
    return attack.run(view, seed=seed, device="cpu")


HANDLED = {
    "full batch": (("digits", 16), {}),
    "mini-batch": (("digits", 16), {"batch_size": 4, "epochs": 300}),
    "momentum": (("digits", 16), {"momentum": 0.9, "steps": 500}),
    "early stopping": (("digits", 16), {"stop_loss": 1e-2}),
    "large steps": (("digits", 16), {"lr": 0.15, "momentum": 0.0, "steps": 500}),
    "weight decay": (("digits", 16), {"weight_decay": 1e-3, "steps": 600}),
    "weight decay, large inputs": (("faces", 16), {"weight_decay": 1e-3, "steps": 600}),
    "binary cross-entropy": (("digits", 16), {"loss": "bce", "steps": 1500}),
    "cross-entropy": (("digits", 16), {"loss": "ce", "steps": 1500}),
    "Huber": (("digits", 16), {"loss": "huber"}),
    "one hidden layer": (("digits", 16), {"model": MLP(width=256, depth=1)}),
    "three hidden layers": (("digits", 16), {"model": MLP(width=256, depth=3)}),
    "four hidden layers": (("digits", 16), {"model": MLP(width=256, depth=4)}),
    "ten classes": (("digits", 20, "all"), {}),
    "ten classes, cross-entropy": (("digits", 20, "all"), {"loss": "ce", "steps": 1000}),
    "NTK parameterisation": (("digits", 16), {"model": MLP(width=256, parameterisation="ntk")}),
    "bias in the first layer only": (("digits", 16), {"model": MLP(width=256, bias="first")}),
    "table": (("breast-cancer", 10), {}),
    "faces": (("faces", 20), {"model": MLP(width=512)}),
}


@pytest.mark.parametrize("name", HANDLED)
def test_every_training_input_comes_out_exact_with_its_certificate(name):
    (source, size, *classes), settings = HANDLED[name]
    data = draw(source, size, **({"classes": classes[0]} if classes else {}))
    found = recovered(view_of(data, **settings))
    reached = score(found, data.train.inputs)
    assert found.diagnostics["training_size_estimate"] == size
    assert reached.false == 0
    assert reached.exact >= size - 1


@pytest.mark.skipif("EXHUME_DATA" not in os.environ, reason="needs MNIST; set EXHUME_DATA")
def test_mnist_comes_out_exact():
    data = draw("mnist", 20, classes="odd-even")
    found = recovered(view_of(data, MLP(width=512)))
    assert score(found, data.train.inputs).exact == len(found) == 20
    assert found.outcome == Outcome.CERTIFIED


class TestReleased:
    """Weights that were rounded or blurred before their release."""

    @pytest.fixture(scope="class")
    def data(self):
        return draw("faces", 16)

    @pytest.fixture(scope="class")
    def view(self, data):
        return view_of(data, MLP(width=512))

    @pytest.mark.parametrize("size", [1e-6, 3e-6])
    def test_small_noise_is_no_protection(self, view, data, size):
        generator = torch.Generator().manual_seed(0)
        noisy = with_final(view, lambda weight: weight + size * torch.randn(weight.shape, generator=generator))
        reached = score(recovered(noisy), data.train.inputs)
        assert reached.exact >= 14
        assert reached.false == 0

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_the_training_size_survives_half_precision(self, view, data, dtype):
        try:
            found = recovered(with_final(view, lambda weight: weight.to(dtype).float()))
        except Refusal as refusal:
            assert dtype == torch.bfloat16 and "no visible rank" in str(refusal)  # noqa: PT018, PT017
            return
        assert found.diagnostics["training_size_estimate"] == 16
        assert score(found, data.train.inputs).false == 0

    def test_whole_numbers_of_eight_bits_are_refused(self, view):
        def to_int8(weight):
            unit = weight.abs().max() / 127
            return (weight / unit).round() * unit

        with pytest.raises(Refusal, match="no visible rank"):
            recovered(with_final(view, to_int8))


class Stranger(nn.Module):
    """A network as people write it."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(625, 512)
        self.fc2 = nn.Linear(512, 2)

    def forward(self, x):
        return self.fc2(functional.relu(self.fc1(x.flatten(1))))


@pytest.mark.parametrize(
    "settings",
    [{"batch": 4, "momentum": 0.5}, {"weight_decay": 1e-3}],
    ids=["mini-batch with momentum", "weight decay"],
)
def test_a_stranger_s_network_trained_by_a_plain_loop(settings):
    torch.manual_seed(0)
    model, data = Stranger(), draw("faces", 16, centre=False)
    initial, final = plainly_trained(
        model, data.train.inputs, data.train.labels, loss=functional.cross_entropy, lr=0.02, steps=600, **settings
    )
    view = AttackerView(model=model, initial=initial, final=final, input_shape=(1, 25, 25), bounds=(0.0, 1.0))
    found = recovered(view)
    errors = (found.inputs[:, None] - data.train.inputs[None]).flatten(2).abs().amax(dim=2)
    assert found.diagnostics["training_size_estimate"] == 16
    assert int((errors < 0.02).any(dim=0).sum()) >= 14  # exact; near-duplicate faces may leave them uncertified
    assert score(found, data.train.inputs).false == 0


def test_a_head_on_frozen_features_gives_the_features_away():
    torch.manual_seed(0)
    frozen = nn.Sequential(nn.Conv2d(1, 8, 5, stride=3), nn.ReLU(), nn.Flatten()).requires_grad_(False)
    model = nn.Sequential(frozen, nn.Linear(392, 384), nn.ReLU(), nn.Linear(384, 1))
    data = draw("faces", 14)
    inputs, targets = data.to_model(data.train.inputs), 2.0 * data.train.labels[:, None] - 1
    initial, final = plainly_trained(model, inputs, targets, loss=functional.mse_loss, lr=0.03, steps=800, momentum=0.9)
    view = AttackerView(model=model, initial=initial, final=final, input_shape=(1, 25, 25), offset=data.offset)
    found = recovered(view)
    assert found.inputs.shape[1:] == (392,)
    errors = (found.inputs[:, None] - frozen(inputs)[None]).abs().amax(dim=2)
    assert int((errors < 0.02).any(dim=0).sum()) >= 12
    assert not bool(found.certified.any())  # without a range to check them against, features are not proven


class TestWithoutBias:
    """The sign then comes from the gates, and the scale from the range of pixels."""

    @pytest.mark.parametrize("centre", [True, False])
    def test_digits_come_out_exact(self, centre):
        data = draw("digits", 16, centre=centre)
        reached = score(recovered(view_of(data, MLP(width=512, bias="none"))), data.train.inputs)
        assert reached.exact >= (16 if centre else 10)  # uncentred, few digits have three pixels at full ink
        assert reached.false == 0

    def test_directions_are_exact_where_the_scale_is_unknown(self):
        data = draw("faces", 16)
        view = view_of(data, MLP(width=512, bias="none"))
        found = recovered(view)
        seen, truth = (view.to_model(images).flatten(1) for images in (found.inputs, data.train.inputs))
        cosines = torch.cosine_similarity(seen[:, None], truth[None], dim=2)
        assert len(found) == 16
        assert float(cosines.amax(dim=1).min()) > 0.9999
        assert score(found, data.train.inputs).false == 0


def test_a_hunt_that_is_interrupted_ends_the_same(tmp_path, monkeypatch):
    view = view_of(draw("digits", 12), MLP(width=256))
    whole = recovered(view)
    monkeypatch.setattr("exhume.core.checkpoint.SAVE_SECONDS", 0.0)

    class StopError(Exception):
        pass

    def stop_at_round(number):
        def progress(stage, done, total, note):
            if note == f"round {number}":
                raise StopError

        return progress

    file = tmp_path / "hunt.safetensors"
    for number in (1, 2):
        with pytest.raises(StopError):
            BRIEF.run(view, device="cpu", checkpoint=file, progress=stop_at_round(number))
    resumed = BRIEF.run(view, device="cpu", checkpoint=file)
    assert replace(resumed, seconds=0.0) == replace(whole, seconds=0.0)
    with pytest.raises(ExhumeError, match="other settings"):
        BRIEF.run(view, seed=1, device="cpu", checkpoint=file)


@pytest.mark.parametrize("report", [1, 5])
def test_a_hunt_that_is_told_to_stop_keeps_its_state_however_short_it_was(tmp_path, report):
    view = view_of(draw("digits", 12), MLP(width=256))
    file, heard_before = tmp_path / "hunt.safetensors", []

    def stop(stage, done, total, note):
        heard_before.append(note)
        if heard_before.count("round 2") == report:  # a round reports more than once
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        BRIEF.run(view, device="cpu", checkpoint=file, progress=stop)
    assert file.is_file()
    heard = []
    resumed = BRIEF.run(view, device="cpu", checkpoint=file, progress=lambda *report: heard.append(report[3]))
    assert heard[0] == "round 2"
    assert replace(resumed, seconds=0.0) == replace(recovered(view), seconds=0.0)


@pytest.mark.parametrize("settings", [{"starts": 0}, {"rounds": 0}, {"patience": -1}, {"error_rate": 0.0}])
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(ExhumeError, match=next(iter(settings))):
        GateCertificate(**settings)


class TestResult:
    @pytest.fixture(scope="class")
    def data(self):
        return draw("digits", 12)

    @pytest.fixture(scope="class")
    def view(self, data):
        return view_of(data, MLP(width=512))

    @pytest.fixture(scope="class")
    def found(self, view):
        return recovered(view)

    def test_is_what_a_caller_needs(self, found, view):
        assert found.inputs.shape == (12, *view.input_shape)
        assert found.certified.shape == found.confidence.shape == found.p_values.shape == (12,)
        count = int(found.certified.sum())
        assert count >= 11  # a digit may have a near-duplicate, which stays unproven
        assert found.outcome == (Outcome.CERTIFIED if count == 12 else Outcome.PARTIAL)
        assert found.message == f"{count} of 12 training inputs are certified."

    def test_is_in_pixel_units(self, found):
        assert -0.02 < float(found.inputs.min()) < 0.02
        assert 0.98 < float(found.inputs.max()) < 1.02

    def test_carries_p_values_and_agreements(self, found):
        assert float(found.p_values.max()) < 1e-12
        assert float(found.confidence.min()) > 0.9

    def test_tells_of_the_subspace(self, found):
        told = found.diagnostics
        assert told["training_size_estimate"] == 12
        assert told["training_size_is_clear"]
        assert len(told["singular_values"]) > 12
        assert len(told["agreement"]) == 12
        assert told["candidates_tried"] >= 12

    def test_repeats_itself_by_seed(self, found, view):
        assert replace(recovered(view), seconds=0.0) == replace(found, seconds=0.0)

    def test_depends_on_the_seed_only_in_its_order(self, data, view):
        assert score(recovered(view, seed=7), data.train.inputs).exact >= 11

    def test_survives_saving(self, found, tmp_path):
        found.save(tmp_path / "found.safetensors")
        assert Reconstruction.load(tmp_path / "found.safetensors") == found

    def test_tells_of_its_progress(self, view):
        heard = []
        GateCertificate().run(view, device="cpu", progress=lambda *said: heard.append(said))
        assert heard[0] == ("recover", 0, 12, "round 1")
        assert heard[-1] == ("recover", 12, 12, "certify")

    def test_an_impossible_error_rate_certifies_nothing(self, view):
        found = recovered(view, attack=GateCertificate(error_rate=1e-300, rounds=2))
        assert not bool(found.certified.any())
        assert found.outcome == Outcome.NOTHING_FOUND


class TestRefusals:
    @pytest.mark.parametrize("activation", ["gelu", "leaky-relu", "tanh"])
    def test_no_flat_side(self, activation):
        with pytest.raises(Refusal, match=f"flat side.*{activation.replace('-', '')} follows"):
            recovered(view_of(draw(size=8), MLP(width=64, activation=activation), steps=20))

    def test_no_activation(self):
        with pytest.raises(Refusal, match="no activation"):
            recovered(view_of(draw(size=8), MLP(depth=0), steps=20))

    def test_convolution(self):
        with pytest.raises(Refusal, match="not a dense layer"):
            recovered(view_of(draw(size=8), ConvNet(channels=2), steps=5))

    def test_more_inputs_than_values(self):
        with pytest.raises(Refusal, match="at least 31 inputs"):
            recovered(view_of(draw("breast-cancer", 40)))

    def test_more_inputs_than_units(self):
        with pytest.raises(Refusal, match="no visible rank"):
            recovered(view_of(draw("faces", 40), MLP(width=32)))

    def test_adam(self):
        with pytest.raises(Refusal, match="Adam"):
            recovered(view_of(draw("faces", 12), optimiser="adam", steps=200))

    def test_no_start(self):
        view = view_of(draw(size=8), MLP(width=64), steps=5)
        with pytest.raises(Refusal, match="no initial weights"):
            recovered(replace(view, initial=None))
        with pytest.raises(Refusal, match="nothing was trained"):
            recovered(replace(view, final=view.initial))

    def test_the_wrong_start(self):
        view = view_of(draw("faces", 12), steps=100)
        other = view_of(draw("faces", 12), steps=100, seed=1)
        with pytest.raises(Refusal, match="no visible rank"):
            recovered(replace(view, initial=other.initial))


@dataclass(frozen=True, kw_only=True)
class Given(Attack):
    """Returns images it was given: what somebody suspects to be training data."""

    images: Sequence[torch.Tensor]

    def check(self, view):
        pass

    def recover(self, view, context):
        images = torch.stack(list(self.images))
        nothing = torch.zeros(len(images))
        return Reconstruction(
            inputs=images, certified=nothing.bool(), confidence=nothing, outcome=Outcome.NOTHING_FOUND
        )


class TestNegativeControls:
    def test_nothing_is_certified_in_changes_that_no_training_made(self):
        tried = 0
        for seed, sparse in ((0, False), (1, False), (2, True), (3, True)):
            view, _ = random_change(seed=seed, inputs=12, sparse=sparse)
            found = recovered(view, seed=seed)
            tried += found.diagnostics["candidates_tried"]
            assert found.diagnostics["training_size_estimate"] == 12
            assert not bool(found.certified.any())
        assert tried >= 1000

    def test_held_out_images_as_starts_are_not_certified(self):
        data = draw("digits", 16)
        suspects = Given(images=tuple(data.holdout.inputs))
        found = recovered(view_of(data), attack=GateCertificate(warm_start=suspects))
        assert score(found, data.train.inputs).false == 0
        assert score(found, data.holdout.inputs).exact == 0

    def test_held_out_images_as_starts_change_nothing_where_nothing_is(self):
        view, _ = random_change(seed=4, inputs=12, values=64)
        images = tuple(draw("digits", 16).holdout.inputs.flatten(1))
        found = recovered(view, attack=GateCertificate(warm_start=Given(images=images), patience=4))
        assert not bool(found.certified.any())

    def test_training_images_as_starts_are(self):
        data = draw("digits", 16)
        suspects = Given(images=tuple(data.train.inputs))
        found = recovered(view_of(data), attack=GateCertificate(warm_start=suspects, rounds=2))
        assert score(found, data.train.inputs).exact >= 14
