"""A small residual network and its images, trained once per process."""

import functools
from typing import Any

import exhume
from exhume.models.resnet import ResNet
from exhume.records import Dataset, Victim

RECIPE: dict[str, Any] = {
    "loss": "ce",
    "lr": 0.1,
    "momentum": 0.0,
    "steps": 3,
    "stop_loss": 0.0,
    "patience": 0,
    "device": "cpu",
}


@functools.cache
def train_resnet(size: int = 4, channels: int = 6, **changes: Any) -> tuple[Dataset, Victim]:
    """Return images of two digits and a residual network that took a few steps on them."""
    data = exhume.load("digits", classes="0,1", size=size, test=0)
    return data, exhume.train(data, model=ResNet(channels=channels, blocks=(1, 1)), **RECIPE | changes)
