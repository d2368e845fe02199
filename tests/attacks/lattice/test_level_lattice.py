from dataclasses import replace

import pytest
import torch
from torch import nn

import exhume
from exhume.attacks import GateCertificate, LevelLattice
from exhume.attacks.gates import gate_certificate
from exhume.attacks.lattice.level_lattice import LatticeDoubt, recover_images
from exhume.core.errors import Refusal
from exhume.records import Outcome

from .photographs import are_same_images, photographs

ACTIVATIONS = {"tanh": nn.Tanh, "gelu": nn.GELU, "leaky": nn.LeakyReLU, "silu": nn.SiLU}


def build(values, activation, width=80, outputs=2):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(values, width), activation(), nn.Linear(width, width), activation(), nn.Linear(width, outputs)
    )


def evidence_of(inputs, activation, kind, steps=40):
    """Train a network on inputs and return what an attacker holds."""
    model = build(inputs.shape[1], activation)
    labels, initial = torch.arange(len(inputs)) % 2, {k: v.detach().clone() for k, v in model.state_dict().items()}
    rule = (
        torch.optim.AdamW(model.parameters(), lr=1e-3)
        if kind == "adamw"
        else torch.optim.SGD(model.parameters(), lr=0.05)
    )
    for _ in range(1 if kind == "gradient" else steps):
        rule.zero_grad()
        nn.functional.cross_entropy(model(inputs.float()), labels).backward()
        if kind != "gradient":
            rule.step()
    held = {
        "gradient": lambda: {"gradient": {name: weight.grad for name, weight in model.named_parameters()}},
        "training": lambda: {"initial": initial},
        "adamw": lambda: {"optimiser_state": rule.state_dict()},
    }[kind]()
    return exhume.AttackerView(
        model=model, final=model.state_dict(), input_shape=inputs.shape[1:], bounds=(0.0, 1.0), **held
    )


@pytest.mark.parametrize("kind", ["gradient", "training", "adamw"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_all_images_are_certified_whatever_the_activation(activation, kind):
    images = photographs(6, side=20)
    found = LevelLattice().run(evidence_of(images, ACTIVATIONS[activation], kind), device="cpu")
    assert found.outcome is Outcome.CERTIFIED
    assert bool(found.certified.all())
    assert are_same_images(found.inputs.flatten(1), images)


def final_weights_of(images, weight_decay, steps=1500, activation=nn.Tanh, dtype=torch.float32):
    """Train one class per image with weight decay, and keep nothing but the final weights.

    With two classes, the first layer of a network at rest has fewer dimensions than there are images.
    """
    model = build(images.shape[1], activation, outputs=len(images)).to(dtype)
    labels = torch.arange(len(images))
    rule = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=weight_decay)
    for _ in range(steps):
        rule.zero_grad()
        nn.functional.cross_entropy(model(images.to(dtype)), labels).backward()
        rule.step()
    return exhume.AttackerView(model=model, final=model.state_dict(), input_shape=images.shape[1:], bounds=(0.0, 1.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
def test_final_weights_alone_reveal_all_images_once_decay_has_removed_the_initial_weights(activation, dtype):
    images = photographs(6, side=20)
    found = LevelLattice().run(final_weights_of(images, 0.01, activation=activation, dtype=dtype), device="cpu")
    assert are_same_images(found.inputs.flatten(1)[found.certified], images)


def test_final_weights_that_contain_the_initial_ones_reveal_none():
    view = final_weights_of(photographs(6, side=20), 1e-4)
    try:
        found = LevelLattice().run(view, device="cpu")
    except Refusal:
        return
    assert len(found) == 0


def test_final_weights_of_other_inputs_reveal_none():
    found = LevelLattice().run(final_weights_of(photographs(6, side=20).sqrt(), 0.01), device="cpu")
    assert len(found) == 0


def test_more_images_are_exact_where_another_choice_is_not_ruled_out():
    images = photographs(20, side=20)
    found = LevelLattice().run(evidence_of(images, nn.GELU, "gradient"), device="cpu")
    assert are_same_images(found.inputs.flatten(1), images)
    assert found.diagnostics["doubts"] == ["" if sure else LatticeDoubt.OTHER_CHOICE for sure in found.certified]


def test_similar_images_are_never_certified_wrongly():
    for seed in range(2):  # nearly every set has another choice in the range
        images = photographs(16, side=8, seed=seed)
        found = LevelLattice().run(evidence_of(images, nn.Tanh, "gradient"), device="cpu")
        sure = found.inputs.flatten(1)[found.certified].double()
        assert bool((torch.cdist(sure, images).amin(dim=1) < 1e-3).all()) if len(sure) else True


def test_the_gate_certificate_finds_them_as_well_and_needs_no_search():
    images = photographs(12, side=20)
    found = GateCertificate().run(evidence_of(images, nn.ReLU, "training"), device="cpu")
    assert are_same_images(found.inputs.flatten(1)[found.certified], images)
    assert all(found.diagnostics["on_levels"])


@pytest.mark.parametrize("kind", ["gradient", "training"])
def test_inputs_between_levels_are_not_found(kind):
    between = photographs(10).sqrt()
    found = LevelLattice().run(evidence_of(between, nn.Tanh, kind), device="cpu")
    assert found.outcome is Outcome.NOTHING_FOUND
    assert len(found) == 0
    assert "no vectors of whole numbers" in found.message


@pytest.mark.parametrize("colour", [0, 100, 255])
def test_an_image_of_one_colour_hides_no_other_and_is_not_certified(colour):
    images = photographs(6, side=20).clone()
    images[2] = colour / 255
    found = LevelLattice().run(evidence_of(images, nn.GELU, "gradient"), device="cpu")
    assert are_same_images(found.inputs.flatten(1), images)
    is_flat = found.inputs.flatten(1).std(dim=1) == 0
    assert torch.equal(found.certified, ~is_flat)
    assert found.diagnostics["doubts"].count(LatticeDoubt.FLAT) == 1


def test_varied_brightness_does_not_make_a_black_image_an_input():
    images = photographs(5, side=20)
    found = LevelLattice().run(evidence_of(torch.cat([images, 0.7 * images]), nn.Tanh, "gradient"), device="cpu")
    sure = found.inputs.flatten(1)[found.certified].double()
    assert bool((torch.cdist(sure, images).amin(dim=1) < 1e-3).all()) if len(sure) else True


def test_4_bit_digits_are_not_taken_for_8_bit_images():
    digits = exhume.load("digits", size=10, centre=False, test=0).train.inputs.flatten(1)
    found = LevelLattice().run(evidence_of(digits, nn.Tanh, "gradient"), device="cpu")
    assert len(found) == 0


def test_evidence_of_other_networks_proves_nothing_about_this_training():
    images, foreign = photographs(8), photographs(8, seed=3)
    found = LevelLattice().run(evidence_of(foreign, nn.Tanh, "gradient"), device="cpu")
    assert not bool((torch.cdist(found.inputs.flatten(1).double(), images) < 0.1).any())


def test_too_many_inputs_for_the_noise_are_told_at_once():
    images = photographs(30)
    view = evidence_of(images, nn.Tanh, "gradient")
    noise = torch.Generator().manual_seed(0)
    noisy = {
        name: value + 1e-3 * value.abs().mean() * torch.randn(value.shape, generator=noise)
        for name, value in view.gradient.items()
    }
    found = LevelLattice().run(
        exhume.AttackerView(
            model=view.model, final=view.final, input_shape=view.input_shape, bounds=(0.0, 1.0), gradient=noisy
        ),
        device="cpu",
    )
    assert "too many inputs (30)" in found.message


def test_a_view_without_range_is_refused():
    view = evidence_of(photographs(4), nn.Tanh, "gradient")
    without = exhume.AttackerView(
        model=view.model, final=view.final, input_shape=view.input_shape, bounds=None, gradient=view.gradient
    )
    with pytest.raises(Refusal, match="range of the inputs"):
        LevelLattice().check(without)


def test_convolutions_are_refused():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(2 * 6 * 6, 2))
    gradient = {name: torch.rand_like(weight) for name, weight in model.named_parameters()}
    view = exhume.AttackerView(
        model=model, final=model.state_dict(), input_shape=(1, 8, 8), bounds=(0.0, 1.0), gradient=gradient
    )
    with pytest.raises(Refusal):
        LevelLattice().check(view)


def test_the_gate_certificate_returns_images_of_an_incomplete_lattice_without_proof(monkeypatch):
    images = photographs(6, side=20)

    def incomplete(*arguments, **settings):
        found = recover_images(*arguments, **settings)
        return replace(found, is_complete=False)

    monkeypatch.setattr(gate_certificate, "recover_images", incomplete)
    found = GateCertificate(rounds=1, starts=1).run(evidence_of(images, nn.ReLU, "training"), device="cpu")
    lengths = {
        len(found.diagnostics[name]) for name in ("doubts", "error_bounds", "on_levels") if name in found.diagnostics
    }
    assert lengths == {len(found)}
    nearest = torch.cdist(images, found.inputs.flatten(1).double()).amin(dim=1)
    assert bool((nearest < 0.02).all())
