"""Pixels through the layers below a dense layer: certified from a gradient, and never falsely."""

from dataclasses import replace

import torch
from torch import nn

from exhume.attacks import GateCertificate
from exhume.attacks.gates.shared_part import SEPARATED
from exhume.clues.clues import clues_of
from exhume.evaluation import evaluate
from exhume.inversion.through_trunk import trunk_of
from exhume.records import AttackerView
from tests.attacks.gates.conv_victims import conv_network, gradient_view, weight_change_view
from tests.attacks.gates.victims import draw, score

BRIEF = GateCertificate(rounds=12, patience=4, descents=2)


def test_one_gradient_of_a_convolutional_network_gives_certified_images() -> None:
    data = draw(size=6)
    view = gradient_view(conv_network(), data)
    found = BRIEF.run(view, seed=0, device="cpu")
    reached = score(found, data.train.inputs)
    assert found.inputs.shape[1:] == data.input_shape
    assert (reached.recovered, reached.false) == (6, 0)
    assert reached.exact >= 5
    assert found.diagnostics["layer"] == "hidden"
    assert found.diagnostics["certified_features"] >= reached.exact
    assert found.diagnostics["preimages"].count("determined") >= 5


def test_features_stay_where_no_input_is_determined_and_can_be_evaluated() -> None:
    data = draw(size=6)
    torch.manual_seed(0)
    trunk = (nn.Conv2d(1, 3, 3, stride=2), nn.ReLU(), nn.Flatten())
    head = (nn.Linear(27, 192), nn.ReLU(), nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, 2))
    view = gradient_view(nn.Sequential(*trunk, *head), data)
    found = BRIEF.run(view, seed=0, device="cpu")
    assert found.inputs.shape[1:] == (27,)
    assert "determined" not in found.diagnostics["preimages"]
    features = trunk_of(view, clues_of(view).require_gate_layers()[0].name, view.final)(
        data.to_model(data.train.inputs)
    )
    distances = torch.cdist(found.inputs, features).amin(dim=1)
    assert bool((distances[found.certified] < 0.02 * features.max()).all())
    assert evaluate(found, data, victim=view).train.examples.shape == (6, 27)


def test_an_optimiser_state_of_moving_features_certifies_nothing() -> None:
    view = gradient_view(conv_network(), draw(size=6))
    state = AttackerView(
        model=view.model, final=view.final, optimiser_state=view.gradient, input_shape=(1, 8, 8), offset=view.offset
    )
    found = GateCertificate(rounds=4, patience=2, descents=1).run(state, seed=0, device="cpu")
    assert not bool(found.certified.any())
    assert all("average" in doubt or doubt == SEPARATED for doubt in found.diagnostics["doubts"])


def test_the_span_of_features_proves_images_whose_rows_are_in_doubt() -> None:
    data = draw(size=8)
    found = BRIEF.run(gradient_view(conv_network(width=64), data), seed=0, device="cpu")  # 64 units leave few zeros
    reached = score(found, data.train.inputs)
    assert reached.false == 0
    assert int(found.certified.sum()) >= 4
    assert found.diagnostics["isolated"] >= 4


def test_a_combination_of_parts_that_was_not_trained_on_is_not_certified() -> None:
    """Its features are sums and differences of those of three images, so the span of features alone proves it."""
    data = draw(size=8)
    upper, lower = data.train.inputs.clone(), data.train.inputs.clone()
    upper[:, :, 3:], lower[:, :, :5] = 0, 0
    pairs = ((0, 0), (1, 0), (0, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6))
    composed = torch.stack([upper[one] + lower[two] for one, two in pairs])
    untrained = upper[1] + lower[1]
    data = replace(data, train=replace(data.train, inputs=composed))
    head = weight_change_view(conv_network(), data, frozen=True, steps=30)
    for view in (gradient_view(conv_network(), data), head):
        found = BRIEF.run(view, seed=0, device="cpu")
        assert score(found, composed).false == 0
        distances = (found.inputs - untrained).flatten(1).abs().amax(dim=1)
        assert not bool((found.certified & (distances < 0.02)).any())
