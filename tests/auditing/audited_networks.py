"""Small networks to audit, trained by a plain loop, each within a second."""

from functools import cache

import torch
from torch import nn

from exhume.data import load
from exhume.records import AttackerView, Dataset

SEED = 77


def network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 2))


@cache
def digits(size: int = 8) -> Dataset:
    return load("digits", classes="odd-even", size=size, centre=False, seed=3)


@cache
def trained(optimiser: str = "sgd", size: int = 8) -> AttackerView:
    """Train under a seed and return the view of an attacker who has both ends."""
    data = digits(size)
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        model = network()
    initial = {name: weight.clone() for name, weight in model.state_dict().items()}
    steps = (
        torch.optim.SGD(model.parameters(), 0.1) if optimiser == "sgd" else torch.optim.Adam(model.parameters(), 1e-3)
    )
    for _ in range(150):
        steps.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(model(data.train.inputs), data.train.labels))
        steps.step()
    final = {name: weight.detach().clone() for name, weight in model.state_dict().items()}
    return AttackerView(model=network(), initial=initial, final=final, input_shape=(1, 8, 8), bounds=(0.0, 1.0))
