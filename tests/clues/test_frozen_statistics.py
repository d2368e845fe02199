"""The evidence shows whether features were normalised by their own batch."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from exhume.clues.evidence import find_evidence
from exhume.clues.frozen_statistics import computes_as_released
from exhume.records import AttackerView

IMAGES = torch.rand(12, 1, 6, 6, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(12) % 3


def network(normalisation: nn.Module) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = (nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, bias=False), normalisation)
        model = nn.Sequential(*layers, nn.ReLU(), nn.Flatten(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 3))
        for _ in range(5):
            model(torch.rand(32, 1, 6, 6))  # running statistics of other images
    return model


def observe(model: nn.Module, *, is_training: bool) -> AttackerView:
    final = {name: weight.clone() for name, weight in model.state_dict().items()}
    model.train(is_training)
    parts = torch.autograd.grad(functional.cross_entropy(model(IMAGES), LABELS), list(model.parameters()))
    gradient = {name: part for (name, _), part in zip(model.named_parameters(), parts, strict=True)}
    return AttackerView(model=model.eval(), final=final, gradient=gradient, input_shape=(1, 6, 6))


@pytest.mark.parametrize(
    ("normalisation", "is_training", "expected"),
    [
        (nn.BatchNorm2d(8), False, True),
        (nn.BatchNorm2d(8), True, False),
        (nn.BatchNorm2d(8, affine=False), True, False),
        (nn.Dropout(), False, False),
        (nn.Dropout(), True, False),
    ],
)
def test_one_gradient_shows_whether_batches_were_normalised_by_themselves(
    normalisation: nn.Module, is_training: bool, expected: bool
) -> None:
    view = observe(network(normalisation), is_training=is_training)
    assert computes_as_released(view, "7", find_evidence(view)[0]) is expected


def test_layers_without_a_mode_compute_the_same() -> None:
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 16), nn.ReLU(), nn.Linear(16, 3))
    view = observe(model, is_training=True)
    assert computes_as_released(view, "3", find_evidence(view)[0])


@pytest.mark.parametrize("is_training", [False, True])
def test_running_statistics_show_how_a_head_was_trained(is_training: bool) -> None:
    model = network(nn.BatchNorm2d(8))
    initial = {name: weight.clone() for name, weight in model.state_dict().items()}
    model.train(is_training)
    torch.autograd.backward(functional.cross_entropy(model(IMAGES), LABELS))
    final = model.state_dict()
    final["7.weight"] = final["7.weight"] - model.get_parameter("7.weight").grad
    view = AttackerView(model=model.eval(), initial=initial, final=final, input_shape=(1, 6, 6))
    assert computes_as_released(view, "7", find_evidence(view)[0]) is not is_training
