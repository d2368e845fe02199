"""Trained networks that the tests of attacks on final weights share."""

import functools
import math
from dataclasses import replace

import torch

import exhume
from exhume.records import Dataset, Split, Victim
from exhume.training.recipes import max_margin_recipe, weight_decay_recipe


def on_a_circle(turn: float) -> torch.Tensor:
    """Return six points on a circle of radius 0.8."""
    angles = torch.arange(6) * 2 * math.pi / 6 + turn
    return 0.8 * torch.stack([angles.cos(), angles.sin()], 1)


@functools.cache
def circle(seed: int) -> tuple[Dataset, Victim]:
    """Return the six points of Haim et al. (2022) with the points between them held out, and their classifier."""
    labels = torch.arange(6) % 2
    data = Dataset(
        name="circle",
        train=Split(inputs=on_a_circle(0.3), labels=labels),
        holdout=Split(inputs=on_a_circle(0.3 + math.pi / 6), labels=labels),
        classes=("even", "odd"),
        bounds=(-1.0, 1.0),
    )
    return data, exhume.train(data, device="cpu", seed=seed, **max_margin_recipe(width=300, steps=1000))


@functools.cache
def digits(size: int = 20) -> Dataset:
    """Return a few digits of all classes, with hundreds held out."""
    held_out = exhume.load("digits", classes="all", size=400, test=0).holdout
    return replace(exhume.load("digits", classes="all", size=size, test=0), holdout=held_out)


@functools.cache
def classifier() -> Victim:
    """Return a classifier of the 20 digits, trained with weight decay."""
    return exhume.train(
        digits(), device="cpu", **weight_decay_recipe(loss="ce", weight_decay=1e-3, width=80, steps=1500)
    )


@functools.cache
def regression(weight_decay: float) -> Victim:
    """Return a regression on the 20 digits."""
    recipe = weight_decay_recipe(loss="mse", weight_decay=weight_decay, width=80, steps=1000, lr=0.3)
    return exhume.train(digits(), device="cpu", **recipe)
