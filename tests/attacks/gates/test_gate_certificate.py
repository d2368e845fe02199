"""Exact, certified recovery: what it handles, what it refuses, and that it certifies nothing that was not there."""

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from exhume.attacks import Attack, GateCertificate
from exhume.attacks.gates.gate_certificate import _merge
from exhume.core.checkpoint import Checkpoint
from exhume.core.errors import ExhumeError, Refusal
from exhume.models.convnet import ConvNet
from exhume.models.mlp import MLP
from exhume.records import AttackerView, Outcome, Reconstruction
from tests.attacks.gates.victims import (
    build_seeded,
    draw,
    random_change,
    score,
    train_by_plain_loop,
    view_of,
    with_final,
)

BRIEF = GateCertificate(rounds=24, patience=6)
"""Patience that is enough for these small networks."""


def recover(view, seed=0, attack=BRIEF) -> Reconstruction:
    return attack.run(view, seed=seed, device="cpu")


@functools.cache
def digits_recovery() -> Reconstruction:
    """Return the recovery of 12 digits, shared between tests."""
    return recover(digits_view())


def digits_view() -> AttackerView:
    return view_of(draw("digits", 12), MLP(width=256))


@functools.cache
def faces_view() -> AttackerView:
    return view_of(draw("faces", 16), MLP(width=512))


HANDLED = {
    "full batch": (("digits", 10), {}),
    "mini-batch": (("digits", 10), {"batch_size": 5, "epochs": 300}),
    "momentum": (("digits", 10), {"momentum": 0.9, "steps": 500}),
    "early stopping": (("digits", 10), {"stop_loss": 1e-2}),
    "large steps": (("digits", 10), {"lr": 0.15, "momentum": 0.0, "steps": 500}),
    "weight decay, large inputs": (("faces", 10), {"weight_decay": 1e-3, "steps": 600}),
    "binary cross-entropy": (("digits", 10), {"loss": "bce", "steps": 1500}),
    "Huber": (("digits", 10), {"loss": "huber"}),
    "one hidden layer": (("digits", 10), {"model": MLP(width=256, depth=1)}),
    "four hidden layers": (("digits", 10), {"model": MLP(width=256, depth=4)}),
    "ten classes, cross-entropy": (("digits", 12, "all"), {"loss": "ce", "steps": 1000}),
    "NTK parameterisation": (("digits", 10), {"model": MLP(width=256, parameterisation="ntk")}),
    "bias in the first layer only": (("digits", 10), {"model": MLP(width=256, bias="first")}),
    "table": (("breast-cancer", 10), {}),
    "faces": (("faces", 10), {"model": MLP(width=384)}),
}


@pytest.mark.parametrize("name", HANDLED)
def test_every_training_input_comes_out_exact_with_its_certificate(name):
    (source, size, *classes), settings = HANDLED[name]
    data = draw(source, size, **({"classes": classes[0]} if classes else {}))
    found = recover(view_of(data, **settings))
    reached = score(found, data.train.inputs)
    assert found.diagnostics["training_size_estimate"] == size
    assert reached.false == 0
    # All come out in every trial so far; a near-duplicate may stay unproven where rounding differs.
    assert reached.recovered >= size - 1
    assert reached.exact >= size - 3


@pytest.mark.skipif("EXHUME_DATA" not in os.environ, reason="needs MNIST; set EXHUME_DATA")
def test_mnist_comes_out_exact():
    data = draw("mnist", 12, classes="odd-even")
    found = recover(view_of(data, MLP(width=384)))
    reached = score(found, data.train.inputs)
    assert reached.recovered == len(found) == 12
    assert reached.exact >= 10
    assert reached.false == 0


class TestReleased:
    """Weights that were rounded or blurred before their release."""

    @pytest.mark.parametrize("size", [1e-6, 3e-6])
    def test_small_noise_is_no_protection(self, size):
        generator = torch.Generator().manual_seed(0)
        noisy = with_final(faces_view(), lambda weight: weight + size * torch.randn(weight.shape, generator=generator))
        reached = score(recover(noisy), draw("faces", 16).train.inputs)
        assert reached.recovered >= 14
        assert reached.exact >= 12
        assert reached.false == 0

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_the_training_set_size_survives_half_precision(self, dtype):
        try:
            found = recover(with_final(faces_view(), lambda weight: weight.to(dtype).float()))
        except Refusal as refusal:
            assert dtype == torch.bfloat16 and "no visible rank" in str(refusal)  # noqa: PT018, PT017
            return
        assert found.diagnostics["training_size_estimate"] == 16
        assert score(found, draw("faces", 16).train.inputs).false == 0

    def test_eight_bit_weights_are_refused(self):
        def to_int8(weight):
            unit = weight.abs().max() / 127
            return (weight / unit).round() * unit

        with pytest.raises(Refusal, match="no visible rank"):
            recover(with_final(faces_view(), to_int8))


class OwnNetwork(nn.Module):
    """A network as users write it."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(625, 384)
        self.fc2 = nn.Linear(384, 2)

    def forward(self, x):
        return self.fc2(functional.relu(self.fc1(x.flatten(1))))


@pytest.mark.parametrize(
    ("size", "settings"),
    [(10, {"batch": 4, "momentum": 0.5}), (14, {"weight_decay": 1e-3})],
    ids=["mini-batch with momentum", "weight decay"],
)
def test_a_user_s_network_trained_by_a_plain_loop(size, settings):
    model, data = build_seeded(OwnNetwork, seed=1), draw("faces", size, centre=False)
    initial, final = train_by_plain_loop(
        model, data.train.inputs, data.train.labels, loss=functional.cross_entropy, lr=0.02, steps=400, **settings
    )
    view = AttackerView(model=model, initial=initial, final=final, input_shape=(1, 25, 25), bounds=(0.0, 1.0))
    found = recover(view)
    reached = score(found, data.train.inputs)
    assert found.diagnostics["training_size_estimate"] == size
    assert reached.recovered >= size - 2  # near-duplicate faces may leave them uncertified
    assert reached.false == 0


def test_the_inputs_of_a_head_on_frozen_features_are_recovered():
    frozen = build_seeded(lambda: nn.Sequential(nn.Conv2d(1, 8, 5, stride=3), nn.ReLU(), nn.Flatten()))
    head = build_seeded(lambda: nn.Sequential(nn.Linear(392, 384), nn.ReLU(), nn.Linear(384, 1)))
    model = nn.Sequential(frozen.requires_grad_(False), *head)
    data = draw("faces", 10)
    inputs, targets = data.to_model(data.train.inputs), 2.0 * data.train.labels[:, None] - 1
    initial, final = train_by_plain_loop(
        model, inputs, targets, loss=functional.mse_loss, lr=0.03, steps=800, momentum=0.9
    )
    view = AttackerView(model=model, initial=initial, final=final, input_shape=(1, 25, 25), offset=data.offset)
    found = recover(view, attack=replace(BRIEF, descents=1))  # 392 features do not determine 625 pixels
    assert found.inputs.shape[1:] == (392,)
    errors = (found.inputs[:, None] - frozen(inputs)[None]).abs().amax(dim=2)
    assert int((errors < 0.02).any(dim=0).sum()) >= 8
    assert bool((errors.amin(dim=1)[found.certified] < 0.02).all())


class TestWithoutBias:
    """Without a bias the sign comes from the gates, and the scale from the range of pixels."""

    @pytest.mark.parametrize("centre", [True, False])
    def test_digits_come_out_exact(self, centre):
        data = draw("digits", 16, centre=centre)
        reached = score(recover(view_of(data, MLP(width=512, bias="none"))), data.train.inputs)
        assert reached.exact >= (14 if centre else 8)  # uncentred, few digits have three pixels at full ink
        assert reached.false == 0

    def test_directions_are_exact_where_the_scale_is_unknown(self):
        data = draw("faces", 10)
        view = view_of(data, MLP(width=384, bias="none"))
        found = recover(view)
        seen, truth = (view.to_model(images).flatten(1) for images in (found.inputs, data.train.inputs))
        cosines = torch.cosine_similarity(seen[:, None], truth[None], dim=2)
        assert len(found) == 10
        assert float(cosines.amax(dim=1).min()) > 0.9999
        assert score(found, data.train.inputs).false == 0


def test_a_checkpoint_of_another_kind_gets_one_sentence(tmp_path):
    file = tmp_path / "rows.safetensors"
    Checkpoint(file, "some identity", "hunt").save({"rounds": 1}, {"found": torch.zeros(1, 1)})
    with pytest.raises(ExhumeError) as raised:
        BRIEF.run(digits_view(), device="cpu", checkpoint=file)
    assert str(file) in str(raised.value)
    assert str(raised.value).count(". ") == 0


@pytest.mark.parametrize(
    "settings",
    [{"starts": 0}, {"rounds": 0}, {"patience": -1}, {"error_rate": 0.0}, {"error_rate": 1.0}, {"warm_start": "max"}],
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(ExhumeError, match=next(iter(settings))):
        GateCertificate(**settings)


class TestResult:
    def test_has_one_entry_per_input(self):
        found = digits_recovery()
        assert found.inputs.shape == (12, *digits_view().input_shape)
        assert found.certified.shape == found.confidence.shape == found.p_values.shape == (12,)
        count = int(found.certified.sum())
        assert count >= 10  # a digit may have a near-duplicate, which stays unproven
        assert found.outcome == (Outcome.CERTIFIED if count == 12 else Outcome.PARTIAL)
        assert found.message == f"{count} of 12 training inputs are certified."

    def test_is_in_pixel_units(self):
        inputs = digits_recovery().inputs
        assert -0.02 < float(inputs.min()) < 0.02
        assert 0.98 < float(inputs.max()) < 1.02

    def test_carries_p_values_and_agreements(self):
        assert float(digits_recovery().p_values.max()) < 1e-12
        assert float(digits_recovery().confidence.min()) > 0.9

    def test_describes_the_subspace(self):
        diagnostics = digits_recovery().diagnostics
        assert diagnostics["training_size_estimate"] == 12
        assert diagnostics["training_size_is_clear"]
        assert len(diagnostics["singular_values"]) > 12
        assert len(diagnostics["agreement"]) == 12
        assert diagnostics["candidates_tried"] >= 12

    def test_repeats_itself_by_seed_and_reports_progress(self):
        reports = []
        again = BRIEF.run(digits_view(), device="cpu", progress=lambda *report: reports.append(report))
        assert replace(again, seconds=0.0) == replace(digits_recovery(), seconds=0.0)
        assert reports[0] == ("recover", 0, 12, "round 1")
        assert reports[-1] == ("recover", 12, 12, "certify")

    def test_depends_on_the_seed_only_in_its_order(self):
        assert score(recover(digits_view(), seed=7), draw("digits", 12).train.inputs).exact >= 10

    def test_survives_saving(self, tmp_path):
        digits_recovery().save(tmp_path / "found.safetensors")
        assert Reconstruction.load(tmp_path / "found.safetensors") == digits_recovery()

    def test_an_impossible_error_rate_certifies_nothing(self):
        found = recover(digits_view(), attack=GateCertificate(error_rate=1e-300, rounds=2))
        assert not bool(found.certified.any())
        assert found.outcome == Outcome.NOTHING_FOUND

    def test_settings_print_in_their_order(self):
        expected = "GateCertificate(starts=None, rounds=24, patience=6, error_rate=0.001, descents=25, warm_start=None)"
        assert repr(BRIEF) == expected


class TestRefusals:
    @pytest.mark.parametrize("activation", ["gelu", "leaky-relu", "tanh"])
    def test_no_flat_side(self, activation):
        with pytest.raises(Refusal, match=f"flat side.*{activation.replace('-', '')} follows"):
            recover(view_of(draw(size=8), MLP(width=64, activation=activation), steps=20))

    def test_no_activation(self):
        with pytest.raises(Refusal, match="no activation"):
            recover(view_of(draw(size=8), MLP(depth=0), steps=20))

    def test_convolution(self):
        with pytest.raises(Refusal, match="not a dense layer"):
            recover(view_of(draw(size=8), ConvNet(channels=2), steps=5))

    def test_more_inputs_than_values(self):
        with pytest.raises(Refusal, match="at least 31 inputs"):
            recover(view_of(draw("breast-cancer", 40)))

    def test_no_start(self):
        view = view_of(draw(size=8), MLP(width=64), steps=5)
        with pytest.raises(Refusal, match="no initial weights"):
            recover(replace(view, initial=None))
        with pytest.raises(Refusal, match="nothing was trained"):
            recover(replace(view, final=view.initial))

    def test_the_wrong_start(self):
        view = view_of(draw("faces", 12), steps=100)
        other = view_of(draw("faces", 12), steps=100, seed=1)
        with pytest.raises(Refusal, match="no visible rank"):
            recover(replace(view, initial=other.initial))


@dataclass(frozen=True, kw_only=True)
class Given(Attack):
    """An attack that returns given images: what somebody suspects to be training data."""

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
    @pytest.mark.parametrize(("seed", "sparse"), [(0, False), (2, True)])
    def test_nothing_is_certified_in_changes_that_no_training_made(self, seed, sparse):
        view, _ = random_change(seed=seed, inputs=12, sparse=sparse)
        found = recover(view, seed=seed, attack=GateCertificate(patience=3))
        assert found.diagnostics["training_size_estimate"] == 12
        assert found.diagnostics["candidates_tried"] >= 300
        assert not bool(found.certified.any())

    def test_held_out_images_as_starts_are_not_certified(self):
        data = draw("digits", 16)
        suspects = Given(images=tuple(data.holdout.inputs))
        found = recover(view_of(data), attack=GateCertificate(warm_start=suspects))
        assert score(found, data.train.inputs).false == 0
        assert score(found, data.holdout.inputs).exact == 0

    def test_held_out_images_as_starts_change_nothing_where_nothing_is(self):
        view, _ = random_change(seed=4, inputs=12, values=64)
        images = tuple(draw("digits", 16).holdout.inputs[:64].flatten(1))
        found = recover(view, attack=GateCertificate(warm_start=Given(images=images), patience=3))
        assert not bool(found.certified.any())

    def test_training_images_as_starts_are_certified(self):
        data = draw("digits", 16)
        suspects = Given(images=tuple(data.train.inputs))
        found = recover(view_of(data), attack=GateCertificate(warm_start=suspects, rounds=2))
        assert score(found, data.train.inputs).exact >= 14


def test_inputs_on_levels_replace_only_unproven_ones():
    found = Reconstruction(
        inputs=torch.eye(3),
        certified=torch.tensor([True, False, False]),
        confidence=torch.ones(3),
        p_values=torch.zeros(3, dtype=torch.float64),
        outcome=Outcome.PARTIAL,
        diagnostics={name: [None] * 3 for name in ("agreement", "contradictions", "error_bounds", "doubts")},
    )
    near = torch.eye(3) + 0.001
    log_p = torch.tensor([-1.0, -2.0, -3.0, -4.0], dtype=torch.float64)
    merged, known = _merge(found, torch.cat([near[:2], near[1:2] + 0.001, torch.ones(1, 3)]), log_p, 0.02)
    assert torch.equal(merged.inputs[0], found.inputs[0])
    assert torch.equal(merged.inputs[1], near[1])
    assert torch.equal(merged.inputs[2], found.inputs[2])
    assert len(merged) == 5  # a second one near the same place, and one that is new
    assert known.nan_to_num(0.0).tolist() == [0, -2, 0, -3, -4]
