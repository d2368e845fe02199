"""Losses: their formulas, the targets they code, the outputs they need, and what they refuse."""

import pytest
import torch

from exhume.core.errors import ExhumeError
from exhume.records import Dataset, Split
from exhume.training.losses import LOSSES, margin_directions


def task(classes: int, targets: torch.Tensor | None = None) -> Dataset:
    labels = torch.arange(6) % classes
    split = Split(inputs=torch.zeros(6, 4), labels=labels, targets=targets)
    return Dataset(name="t", train=split, holdout=split, classes=tuple("abcdef"[:classes]), bounds=(0.0, 1.0))


def test_two_classes_are_coded_as_each_loss_wants_them():
    data = task(2)
    expected = {
        "mse": [[-1.0], [1.0]],
        "huber": [[-1.0], [1.0]],
        "bce": [[0.0], [1.0]],
        "ce": [0, 1],
    }
    for name, start in expected.items():
        assert LOSSES[name].targets(data, data.train)[:2].tolist() == start
    assert {name: LOSSES[name].outputs(data) for name in LOSSES} == {"mse": 1, "huber": 1, "bce": 1, "ce": 2}


def test_more_classes_are_centred_one_hot_rows_or_indices():
    data = task(3)
    coded = LOSSES["mse"].targets(data, data.train)
    assert torch.allclose(coded[1], torch.tensor([-1 / 3, 2 / 3, -1 / 3]))
    assert torch.allclose(coded.sum(1), torch.zeros(6), atol=1e-6)
    assert LOSSES["ce"].targets(data, data.train).tolist() == [0, 1, 2, 0, 1, 2]
    assert LOSSES["mse"].outputs(data) == LOSSES["ce"].outputs(data) == 3
    with pytest.raises(ExhumeError, match="two classes, the data has 3; train with ce"):
        LOSSES["bce"].targets(data, data.train)


def test_mean_squares_are_the_papers():
    outputs, targets = torch.tensor([[0.5, 2.0], [1.0, -1.0]]), torch.tensor([[0.0, 1.0], [1.0, 1.0]])
    assert LOSSES["mse"](outputs, targets).item() == pytest.approx(0.5 * (0.25 + 1.0 + 0.0 + 4.0) / 4)
    assert LOSSES["huber"](outputs, targets).item() == pytest.approx((0.125 + 0.5 + 0.0 + 1.5) / 4)


def test_binary_cross_entropy_is_the_softmax_one_of_two_outputs():
    outputs = torch.tensor([[0.3], [-2.0]])
    labels = torch.tensor([1, 0])
    pairs = torch.cat([torch.zeros_like(outputs), outputs], 1)
    binary = LOSSES["bce"](outputs, labels[:, None].float())
    assert torch.allclose(binary, LOSSES["ce"](pairs, labels))


@pytest.mark.parametrize(
    ("name", "outputs"),
    [("mse", 1), ("mse", 2), ("mse", 5), ("huber", 1), ("huber", 2), ("huber", 5), ("bce", 1), ("ce", 2), ("ce", 5)],
)
def test_curvature_bounds_the_second_derivative(name, outputs):
    loss, generator = LOSSES[name], torch.Generator().manual_seed(0)
    targets = {"ce": torch.zeros(1, dtype=torch.long), "bce": torch.ones(1, 1, dtype=torch.float64)}.get(
        name, torch.zeros(1, outputs, dtype=torch.float64)
    )
    steepest = 0.0
    for scale in (0.0, 0.3, 1.0):
        point = scale * torch.randn(1, outputs, dtype=torch.float64, generator=generator)
        hessian = torch.func.hessian(lambda f: loss(f, targets))(point).reshape(outputs, outputs)
        steepest = max(steepest, torch.linalg.eigvalsh(hessian)[-1].item())
    assert steepest <= loss.curvature(outputs) + 1e-12
    if outputs <= 2:
        assert steepest == pytest.approx(loss.curvature(outputs))


def test_soft_targets_replace_labels_where_they_make_sense():
    soft = torch.full((6, 3), 0.2)
    data = task(3, soft)
    assert LOSSES["mse"].targets(data, data.train) is soft
    assert LOSSES["mse"].outputs(data) == LOSSES["ce"].outputs(data) == 3
    with pytest.raises(ExhumeError, match="not probabilities; train with mse, not ce"):
        LOSSES["ce"].targets(data, data.train)
    shares = torch.tensor([[0.25, 0.25, 0.5]]).expand(6, 3)
    data = task(3, shares)
    assert LOSSES["ce"].targets(data, data.train) is shares
    signed = task(2, torch.linspace(-1, 1, 6)[:, None])
    with pytest.raises(ExhumeError, match="not probabilities; train with mse, not bce"):
        LOSSES["bce"].targets(signed, signed.train)


def margin(outputs, label):
    if len(outputs) == 1:
        return (2 * label - 1) * outputs[0]
    others = torch.cat([outputs[:label], outputs[label + 1 :]])
    return outputs[label] - others.max()


@pytest.mark.parametrize("outputs", [1, 2, 4])
def test_margin_directions_are_gradients_of_margins(outputs):
    values, labels = (
        torch.randn(6, outputs, generator=torch.Generator().manual_seed(0), dtype=torch.float64),
        torch.arange(6) % max(2, outputs),
    )
    slow = torch.stack(
        [torch.func.grad(margin)(row, label) for row, label in zip(values, labels.tolist(), strict=True)]
    )
    torch.testing.assert_close(margin_directions(values, labels), slow)
