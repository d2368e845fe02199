"""One command audits a convolutional network from any evidence, and ends with a verdict within its budget."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

import exhume
from exhume.cli import main
from tests.auditing import kinds_of_models as kinds

DATA = exhume.load("digits", size=10, seed=0, centre=False)
IMAGES, LABELS = DATA.train.inputs[:6], DATA.train.labels[:6].long()
Evidence = Callable[[nn.Module, Path], list[str]]
"""Saves what an attacker holds of a network, and returns the options for it."""


def loss_of(model: nn.Module) -> torch.Tensor:
    return functional.cross_entropy(model(IMAGES), LABELS)


def save_gradient(model: nn.Module, folder: Path) -> list[str]:
    """Save the weights and one gradient, and return the options for them."""
    parts = torch.autograd.grad(loss_of(model.eval()), list(model.parameters()))
    save_file(
        {name: part for (name, _), part in zip(model.named_parameters(), parts, strict=True)}, folder / "g.safetensors"
    )
    save_file(model.state_dict(), folder / "final.safetensors")
    return [f"--final={folder / 'final.safetensors'}", f"--gradient={folder / 'g.safetensors'}"]


def save_gradient_of_batch(model: nn.Module, folder: Path) -> list[str]:
    """Save the weights and one gradient that was taken with the statistics of the batch, as in training."""
    save_file(model.state_dict(), folder / "final.safetensors")
    parts = torch.autograd.grad(loss_of(model.train()), list(model.parameters()))
    save_file(
        {name: part for (name, _), part in zip(model.named_parameters(), parts, strict=True)}, folder / "g.safetensors"
    )
    return [f"--final={folder / 'final.safetensors'}", f"--gradient={folder / 'g.safetensors'}"]


def save_checkpoint(model: nn.Module, folder: Path) -> list[str]:
    """Train all layers by AdamW, and save what a training can resume from."""
    optimiser = torch.optim.AdamW(model.parameters(), 1e-3)
    for _ in range(30):
        optimiser.zero_grad()
        torch.autograd.backward(loss_of(model))
        optimiser.step()
    torch.save({"model": model.state_dict(), "optimizer": optimiser.state_dict()}, folder / "last.pt")
    return [f"--checkpoint={folder / 'last.pt'}"]


def save_head(model: nn.Module, folder: Path) -> list[str]:
    """Train the dense layers by SGD above frozen convolutions, and save both ends."""
    initial = copy.deepcopy(model.state_dict())
    head = [weight for layer in model.eval() if isinstance(layer, nn.Linear) for weight in layer.parameters()]
    optimiser = torch.optim.SGD(head, 0.05)
    for _ in range(30):
        optimiser.zero_grad()
        torch.autograd.backward(loss_of(model))
        optimiser.step()
    for name, weights in (("initial", initial), ("final", model.state_dict())):
        save_file(weights, folder / f"{name}.safetensors")
    return [f"--{name}={folder / name}.safetensors" for name in ("initial", "final")]


def audit(factory: str, evidence: Evidence, folder: Path, *, minutes: float, attack: str = "auto") -> dict[str, Any]:
    """Audit a network of digits by the command line, and return its ``audit.json``."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        options = evidence(getattr(kinds, factory)(), folder)
    for name, inputs in (("train-data", IMAGES), ("holdout", DATA.holdout.inputs[:6])):
        np.savez(folder / f"{name}.npz", x=inputs.numpy())
        options.append(f"--{name}={folder / name}.npz")
    model = [f"--model=tests.auditing.kinds_of_models:{factory}", "--input-shape=1,8,8", f"--budget={minutes}"]
    assert (
        main(["audit", *model, *options, f"--attack={attack}", f"--out={folder / 'out'}", "--device=cpu", "--quiet"])
        == 0
    )
    result: dict[str, Any] = json.loads((folder / "out" / "audit.json").read_text())
    return result


@pytest.mark.parametrize(
    ("factory", "attack", "words"),
    [
        ("deep_residual", "auto", "All 6 training images"),  # ends when every input is proven
        ("deep_linear", "last-layer", "All 6 training feature vectors"),
    ],
)
def test_one_gradient_gives_certified_inputs_or_features(factory: str, attack: str, words: str, tmp_path: Path) -> None:
    written = audit(factory, save_gradient, tmp_path, minutes=2.0, attack=attack)
    assert written["verdict"]["sentence"].startswith(words)
    assert written["certified"] == written["certified_exact"] == 6
    assert written["holdout_exact"] == 0


@pytest.mark.parametrize(
    ("factory", "evidence"),
    [("deep_linear", save_checkpoint), ("deep_pool", save_head), ("deep_residual", save_gradient_of_batch)],
)
def test_other_evidence_ends_with_a_verdict_too(factory: str, evidence: Evidence, tmp_path: Path) -> None:
    written = audit(factory, evidence, tmp_path, minutes=0.03)
    assert written["verdict"]["finding"] != "untested"
    assert written["false_certificates"] == 0
