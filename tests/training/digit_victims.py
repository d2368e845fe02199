"""Small training sets of digits, a small network, and comparisons of victims."""

import torch

from exhume.data import load
from exhume.models.mlp import MLP
from exhume.records import Victim

BINARY = load("digits", classes="odd-even", size=12, test=100)
TEN = load("digits", classes="all", size=20, test=100)
SMALL = MLP(width=64, depth=1)


def weight_change(victim: Victim) -> torch.Tensor:
    return torch.cat([(victim.final[name] - victim.initial[name]).flatten().double() for name in victim.final])


def change_cosine(one: Victim, other: Victim) -> float:
    return torch.nn.functional.cosine_similarity(weight_change(one), weight_change(other), dim=0).item()


def have_same_weights(one: Victim, other: Victim) -> bool:
    return all(torch.equal(one.final[name], other.final[name]) for name in one.final)
