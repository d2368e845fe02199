"""The part of a network below a layer, and the inputs that have given features."""

from dataclasses import replace

import torch
from torch import nn

from exhume.core.run_context import RunContext
from exhume.inversion.through_trunk import OTHER_PASS, are_non_negative, invert_features, trunk_of
from exhume.records import AttackerView, Outcome, Reconstruction


def view_of(activation: nn.Module, channels: int = 8) -> AttackerView:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        trunk = (nn.Conv2d(1, channels, 3, padding=1), activation, nn.Flatten())
        model = nn.Sequential(*trunk, nn.Linear(64 * channels, 3))
    return AttackerView(model=model, final=model.state_dict(), input_shape=(1, 8, 8))


def features_found(view: AttackerView, images: torch.Tensor) -> Reconstruction:
    features = trunk_of(view, "3", view.final)(images)
    about = {"error_bounds": [0.0] * len(images), "doubts": [""] * len(images), "training_size_estimate": len(images)}
    sure = torch.ones(len(images), dtype=torch.bool)
    return Reconstruction(
        inputs=features, certified=sure, confidence=sure.float(), outcome=Outcome.CERTIFIED, diagnostics=about
    )


def test_the_sign_of_features_is_probed() -> None:
    view, signed = view_of(nn.ReLU()), view_of(nn.Tanh())
    assert are_non_negative(view, "3", view.final)
    assert not are_non_negative(signed, "3", signed.final)


def test_features_that_determine_their_images_give_certified_images() -> None:
    view, images = view_of(nn.ReLU()), torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    found = invert_features(
        view, "3", view.final, features_found(view, images), RunContext.start(seed=0), descents=2, as_released=True
    )
    assert bool(found.certified.all())
    assert float((found.inputs - images).abs().max()) < 0.02
    assert found.diagnostics["certified_features"] == 3


def test_features_that_do_not_stay_features() -> None:
    view, images = view_of(nn.ReLU(), channels=1), torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    known = features_found(view, images)
    found = invert_features(view, "3", view.final, known, RunContext.start(seed=0), descents=1, as_released=True)
    assert torch.equal(found.inputs, known.inputs)
    assert "determined" not in found.diagnostics["preimages"]
    assert bool(found.certified.all())
    assert found.outcome is Outcome.PARTIAL  # the inputs themselves are not proven


def test_features_without_a_proof_give_way_to_images_that_have_them() -> None:
    view, images = view_of(nn.ReLU(), channels=1), torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    known = replace(features_found(view, images), certified=torch.zeros(2, dtype=torch.bool))
    found = invert_features(view, "3", view.final, known, RunContext.start(seed=0), descents=1, as_released=True)
    assert "several solutions" in found.diagnostics["preimages"]
    assert found.inputs.shape == images.shape
    assert not bool(found.certified.any())


def test_nothing_is_certified_where_layers_below_may_compute_something_else_in_training() -> None:
    view, images = view_of(nn.ReLU()), torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    known = features_found(view, images)
    found = invert_features(view, "3", view.final, known, RunContext.start(), descents=2, as_released=False)
    assert found.inputs.shape == images.shape
    assert not bool(found.certified.any())
    assert set(found.diagnostics["doubts"]) == {OTHER_PASS}


def test_an_unproven_copy_of_a_proven_image_is_dropped_and_an_unknown_number_of_inputs_is_no_error() -> None:
    view, images = view_of(nn.ReLU()), torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    known = features_found(view, images[[0, 1, 1]])
    certified = torch.tensor([True, True, False])
    about = {"error_bounds": [0.0, 0.0, None], "doubts": ["", "", "in doubt"]}
    unsure = replace(known, certified=certified, diagnostics=about)
    found = invert_features(view, "3", view.final, unsure, RunContext.start(seed=0), descents=2, as_released=True)
    assert found.certified.tolist() == [True, True]
    assert len(found.diagnostics["preimages"]) == len(found.diagnostics["doubts"]) == 2
    assert found.outcome is Outcome.PARTIAL
    assert found.message.startswith("2 inputs are certified")
