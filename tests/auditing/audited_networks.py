"""Small networks to audit, trained by a plain loop within a second, and quick attacks to audit them with."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import final

import torch
from torch import nn

from exhume.attacks import GateCertificate
from exhume.attacks.attack import Attack
from exhume.auditing import audit
from exhume.core.run_context import RunContext
from exhume.data import load
from exhume.records import AttackerView, Audit, Dataset, Outcome, Reconstruction

SEED = 77


def network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 2))


@cache
def digits(size: int = 8) -> Dataset:
    return load("digits", classes="odd-even", size=size, centre=False, seed=3)


@cache
def trained(optimiser: str = "sgd", size: int = 8) -> AttackerView:
    """Train from a fixed seed and return the view of an attacker who has the initial and the final weights."""
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        model = network()
    kind = torch.optim.SGD if optimiser == "sgd" else torch.optim.Adam
    return train_by_hand(model, digits(size), kind(model.parameters(), 0.1 if optimiser == "sgd" else 1e-3))


@cache
def trained_above_frozen_features() -> AttackerView:
    """Train the upper layers of a network whose first layer stays as it was, and does not determine its inputs."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 48), nn.Tanh(), nn.Linear(48, 256), nn.ReLU(), nn.Linear(256, 2)
        )
    upper = [*model[3].parameters(), *model[5].parameters()]
    return train_by_hand(model, digits(), torch.optim.SGD(upper, 0.1))


def train_by_hand(
    model: nn.Module, data: Dataset, optimiser: torch.optim.Optimizer, *, steps: int = 150
) -> AttackerView:
    initial = {name: weight.detach().clone() for name, weight in model.state_dict().items()}
    for _ in range(steps):
        optimiser.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(model(data.train.inputs), data.train.labels))
        optimiser.step()
    final = {name: weight.detach().clone() for name, weight in model.state_dict().items()}
    return AttackerView(model=model, initial=initial, final=final, input_shape=(1, 8, 8), bounds=(0.0, 1.0))


@cache
def certified() -> Reconstruction:
    """Return what the certificate finds in :func:`trained`: all eight training images."""
    return GateCertificate().run(trained(), seed=1, device="cpu")


@cache
def proven_audit() -> Audit:
    """Return an automatic audit of :func:`trained` with its data."""
    return audit(trained(), digits(), seed=1)


@final
@dataclass(frozen=True, kw_only=True)
class Counting(Attack):
    """Counts its runs in a file, reports ``reports`` times, and finds noise."""

    tally: str = ""
    reports: int = 0

    def check(self, view: AttackerView) -> None:
        """Apply to everything."""

    def recover(self, view: AttackerView, context: RunContext) -> Reconstruction:
        """Count, report, and return three random inputs."""
        with Path(self.tally).open("a") as file:
            file.write("x")
        for step in range(self.reports):
            context.report("count", step, self.reports)
        return Reconstruction(
            inputs=torch.rand(3, *view.input_shape, generator=context.generator),
            certified=torch.zeros(3, dtype=torch.bool),
            confidence=torch.zeros(3),
            outcome=Outcome.CONVERGED,
        )


class Clock:
    """Stands for :func:`time.monotonic`: every call advances it by one second, on any machine."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        self.seconds += 1.0
        return self.seconds
