"""Pixels through the layers below a dense layer: certified from a gradient, and never falsely."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from exhume.attacks import GateCertificate
from exhume.attacks.gates.shared_part import SEPARATED
from exhume.clues.clues import clues_of
from exhume.core.run_context import OutOfTime
from exhume.evaluation import evaluate
from exhume.inversion.through_trunk import trunk_of
from exhume.records import AttackerView, Dataset
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
    assert found.diagnostics["certified_by_span"] >= 3


def test_the_proofs_keep_the_time_limit_and_what_was_found_before() -> None:
    data = draw(size=8)
    seen: list[str] = []

    def stop(stage: str, done: int, total: int, detail: str = "") -> None:
        seen.append(detail)
        if detail == "proof":
            raise OutOfTime("the time is spent", wraps_up=True)

    view = gradient_view(conv_network(width=64), data)
    found = BRIEF.run(view, seed=0, device="cpu", progress=stop)
    assert "proof" in seen
    assert found.diagnostics["certified_by_span"] == 0
    assert len(found) >= 8


def composed_images(data: Dataset, contrast: float) -> tuple[Dataset, Tensor]:
    """Return images of two parts that no feature sees together, and the one combination of parts that is missing."""
    upper, lower = data.train.inputs.clone(), data.train.inputs.clone()
    upper[:, :, 2:], lower[:, :, :6] = 0, 0
    upper, lower = (part[:1] + contrast * (part - part[:1]) for part in (upper, lower))
    pairs = ((0, 0), (1, 0), (0, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6))
    composed = torch.stack([upper[one] + lower[two] for one, two in pairs])
    return replace(data, train=replace(data.train, inputs=composed)), upper[1] + lower[1]


def test_a_combination_of_parts_that_was_not_trained_on_is_not_certified() -> None:
    data, untrained = composed_images(draw(size=8), contrast=0.5)
    trunk = trunk_of(gradient_view(conv_network(), data), "hidden", conv_network().state_dict())
    base, one, two = trunk(data.to_model(data.train.inputs[:3]))
    torch.testing.assert_close(trunk(data.to_model(untrained[None]))[0], one + two - base)  # it lies in the span
    head = weight_change_view(conv_network(), data, frozen=True, steps=30)
    for view in (gradient_view(conv_network(), data), head):
        found = BRIEF.run(view, seed=0, device="cpu")
        assert score(found, data.train.inputs).false == 0
        distances = (found.inputs - untrained).flatten(1).abs().amax(dim=1)
        assert not bool((found.certified & (distances < 0.02)).any())


def test_without_biases_the_scale_of_images_is_not_certified() -> None:
    data = draw(size=8)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        trunk = (nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.ReLU(), nn.Conv2d(8, 16, 3, padding=1, bias=False))
        model = nn.Sequential(*trunk, nn.ReLU(), nn.Flatten(), nn.Linear(1024, 64, bias=False), nn.ReLU())
        model.append(nn.Linear(64, 2))
    found = BRIEF.run(gradient_view(model, data), seed=0, device="cpu")
    assert score(found, data.train.inputs).false == 0
