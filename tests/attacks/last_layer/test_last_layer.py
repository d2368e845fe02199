"""Features of the last linear layer from one gradient: exact, certified, and never falsely."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import exhume
from exhume.attacks import LastLayer
from exhume.core.errors import Refusal
from exhume.evaluation.frozen_features import features_of
from exhume.records import AttackerView

DATA = exhume.load("digits", size=60, seed=0, centre=False)
IMAGES, LABELS = DATA.train.inputs, DATA.train.labels.long()
FIRST = [int((label == LABELS).nonzero()[0]) for label in range(10)]
"""One example of each class."""


def network(*, pooled: bool = False, steps: int = 0) -> nn.Sequential:
    """Build a network without a dense ReLU layer, trained on the last examples."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        mean = (nn.AdaptiveAvgPool2d(1),) if pooled else ()
        trunk = (
            nn.Conv2d(1, 8, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
        )
        model = nn.Sequential(*trunk, *mean, nn.Flatten(), nn.Linear(16 if pooled else 1024, 10))
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(steps):
        optimiser.zero_grad()
        torch.autograd.backward(functional.cross_entropy(model(IMAGES[30:]), LABELS[30:]))
        optimiser.step()
    return model.eval()


def view_of(model: nn.Module, which: list[int], noise: float = 0.0, smoothing: float = 0.0) -> AttackerView:
    loss = functional.cross_entropy(model(IMAGES[which]), LABELS[which], label_smoothing=smoothing)
    parts = torch.autograd.grad(loss, list(model.parameters()))
    generator = torch.Generator().manual_seed(0)
    gradient = {
        name: part + noise * part.std() * torch.randn(part.shape, generator=generator)
        for (name, _), part in zip(model.named_parameters(), parts, strict=True)
    }
    return AttackerView(model=model, final=model.state_dict(), gradient=gradient, input_shape=(1, 8, 8))


def errors(found: Tensor, true: Tensor) -> Tensor:
    return torch.cdist(found.flatten(1), true.flatten(1)) / true.flatten(1).norm(dim=1)


@pytest.mark.parametrize("steps", [0, 20])
def test_one_example_per_class_gives_certified_images(steps: int) -> None:
    view = view_of(network(steps=steps), FIRST[:7])
    found = LastLayer(descents=2).run(view, device="cpu")
    assert found.diagnostics["certified_features"] == 7
    assert sorted(found.diagnostics["labels"]) == list(range(7))
    assert found.inputs.shape[1:] == (1, 8, 8)
    assert int(found.certified.sum()) >= 6
    wrong = (found.inputs[:, None] - IMAGES[FIRST[:7]][None]).flatten(2).abs().amax(dim=2).amin(dim=1)
    assert bool((wrong[found.certified] < 0.02).all())


def test_pooled_features_are_certified_and_stay_features() -> None:
    view = view_of(network(pooled=True), FIRST[:6])
    found = LastLayer(descents=1).run(view, device="cpu")
    assert found.inputs.shape == (6, 16)
    assert bool(found.certified.all())
    features = features_of(view, found.diagnostics["layer"], IMAGES[FIRST[:6]])
    assert float(errors(found.inputs, features).amin(dim=0).max()) < 1e-3


def test_a_single_step_of_descent_is_a_gradient() -> None:
    model = network(pooled=True)
    held = view_of(model, FIRST[:5])
    assert held.gradient is not None
    stepped = {name: weight - 0.1 * held.gradient.get(name, torch.zeros(())) for name, weight in held.final.items()}
    stepped = {name: weight.to(held.final[name].dtype) for name, weight in stepped.items()}
    view = replace(held, gradient=None, initial=held.final, final=stepped, training={"steps": 1})
    found = LastLayer(descents=1).run(view, device="cpu")  # the features alone are compared
    features = features_of(held, found.diagnostics["layer"], IMAGES[FIRST[:5]])
    assert int((errors(found.inputs, features).amin(dim=0) < 0.02).sum()) == 5


@pytest.mark.parametrize(
    "view",
    [
        view_of(network(pooled=True), list(range(30))),
        view_of(network(pooled=True), FIRST[:6], noise=1e-2),
        view_of(network(pooled=True), FIRST[:6], smoothing=0.1),
    ],
    ids=["more examples than classes", "noise", "another loss"],
)
def test_nothing_is_certified_without_its_conditions(view: AttackerView) -> None:
    found = LastLayer(starts=2, descents=1).run(view, device="cpu")
    assert not bool(found.certified.any())
    assert found.message


def test_refusals_say_what_is_missing() -> None:
    view = view_of(network(pooled=True), FIRST[:3])
    before = {name: weight + 1 for name, weight in view.final.items()}
    with pytest.raises(Refusal, match="one gradient"):
        LastLayer().run(replace(view, gradient=None, initial=before), device="cpu")
    with pytest.raises(Refusal, match="cross-entropy"):
        LastLayer().run(replace(view, training={"loss": "mse"}), device="cpu")
    signed = nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.Tanh(), nn.Linear(20, 10))
    with pytest.raises(Refusal, match="never negative"):
        LastLayer().run(view_of(signed, FIRST[:3]), device="cpu")
