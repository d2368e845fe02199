"""Small networks trained on images that the tests of several attacks share; each is trained once per process."""

import functools
import os
from typing import Any

import exhume
from exhume.models.mlp import MLP
from exhume.records import AttackerView, Dataset


@functools.cache
def train_mlp(
    source: str = "digits",
    *,
    size: int,
    width: int,
    depth: int = 2,
    classes: str = "odd-even",
    parameterisation: str = "standard",
    seed: int = 0,
    **training: Any,
) -> tuple[Dataset, AttackerView]:
    """Return the images of a dense network and the view of it; both are frozen, so that tests can share them."""
    offline = {"data_dir": os.environ["EXHUME_DATA"]} if "EXHUME_DATA" in os.environ else {}
    data = exhume.load(source, classes=classes, size=size, test=0, seed=seed, **offline)
    model = MLP(width=width, depth=depth, parameterisation=parameterisation)
    return data, exhume.train(data, model=model, device="cpu", seed=seed, **training).view()
