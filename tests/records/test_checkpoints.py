"""Checkpoints by the names of a model: four layouts, shared and frozen parameters, and what a file says it holds."""

import re
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

from exhume.core.errors import WeightsError
from exhume.records import AttackerView, read_checkpoint

RECORDED = Path(__file__).parents[1] / "core" / "fixtures" / "checkpoints"
FILES = {"plain": "last.pt", "lightning": "last.ckpt", "trainer": ".", "accelerate": "."}
OPTIMISERS = {"plain": "SGD", "lightning": "Adam", "trainer": "AdamW", "accelerate": "AdamW"}


def build_network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.LayerNorm(10), nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 3))


@pytest.mark.parametrize("kind", FILES)
def test_a_checkpoint_of_each_library_has_the_weights_and_moments_of_the_live_objects(kind: str) -> None:
    expected = safetensors.torch.load_file(RECORDED / kind / "expected.safetensors")
    view = AttackerView.from_checkpoint(
        RECORDED / kind / FILES[kind], model=build_network(), input_shape=(6,), bounds=None
    )
    state = view.optimiser_state
    assert state is not None
    assert {f"weights/{name}" for name in view.final} | {f"moments/{name}" for name in state.first_moment} == set(
        expected
    )
    for name in view.final:
        assert torch.equal(view.final[name], expected[f"weights/{name}"])
        assert torch.equal(state.first_moment[name], expected[f"moments/{name}"])
    assert state.optimiser == OPTIMISERS[kind]
    assert state.decay == 0.9


def test_the_sentence_says_what_the_file_holds() -> None:
    sentence = read_checkpoint(RECORDED / "trainer", build_network()).sentence
    assert sentence == (
        "This Hugging Face Trainer folder holds the weights and AdamW's first moment for 8 of 8 parameters "
        "after 5 steps."
    )


def save_trained(path: Path, model: nn.Module, rule: torch.optim.Optimizer, inputs: int = 6) -> None:
    model(torch.ones(4, inputs)).square().sum().backward()
    rule.step()
    torch.save({"model_state_dict": model.state_dict(), "optimizer_state_dict": rule.state_dict()}, path)


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.1), "SGD had no memory|SGD keeps no sum"),
        (lambda p: torch.optim.Adagrad(p, lr=0.1), r"Adagrad keeps squares of gradients \(sum\)"),
        (lambda p: torch.optim.RMSprop(p, lr=0.1), r"RMSprop keeps squares of gradients \(square_avg\)"),
        (lambda p: torch.optim.RMSprop(p, lr=0.1, momentum=0.9), "RMSprop sums gradients after rescaling"),
    ],
    ids=["SGD", "Adagrad", "RMSprop", "RMSprop with momentum"],
)
def test_an_optimiser_without_a_sum_of_gradients_is_explained(tmp_path: Path, rule, reason: str) -> None:
    model = build_network()
    save_trained(tmp_path / "last.pt", model, rule(model.parameters()))
    content = read_checkpoint(tmp_path / "last.pt", build_network())
    assert content.optimiser_state is None
    assert re.search(reason, content.sentence)


def test_a_file_of_weights_alone_has_no_state(tmp_path: Path) -> None:
    torch.save(build_network().state_dict(), tmp_path / "weights.pt")
    content = read_checkpoint(tmp_path / "weights.pt", build_network())
    assert content.optimiser_state is None
    assert "it has no optimiser's state" in content.sentence


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(inputs).relu())


def test_shared_weights_that_a_file_names_once_are_filled_in(tmp_path: Path) -> None:
    model = Tied()
    rule = torch.optim.AdamW(model.parameters())
    model(torch.ones(4, 6)).sum().backward()
    rule.step()
    once = {name: weight for name, weight in model.state_dict().items() if name != "second.weight"}
    torch.save({"model": once, "optimizer": rule.state_dict()}, tmp_path / "last.pt")
    view = AttackerView.from_checkpoint(tmp_path / "last.pt", model=Tied(), input_shape=(6,))
    assert torch.equal(view.final["second.weight"], model.first.weight)
    assert view.optimiser_state.first_moment.keys() == {"first.weight", "first.bias", "second.bias"}


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    model = build_network()
    save_trained(tmp_path / "last.pt", model, torch.optim.AdamW(model.parameters()))
    with pytest.raises(WeightsError, match="do not belong to this model"):
        AttackerView.from_checkpoint(tmp_path / "last.pt", model=nn.Linear(6, 3), input_shape=(6,))


def test_a_view_takes_the_state_of_a_live_optimiser() -> None:
    model = build_network()
    rule = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.99))
    model(torch.ones(4, 6)).sum().backward()
    rule.step()
    view = AttackerView(
        model=model, final=model.state_dict(), optimiser_state=rule.state_dict(), input_shape=(6,), bounds=None
    )
    state = view.optimiser_state
    assert torch.equal(state.first_moment["0.weight"], rule.state[model[0].weight]["exp_avg"])
    assert (state.optimiser, state.steps, state.lr) == ("Adam", 1, 1e-3)
