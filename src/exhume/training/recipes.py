"""Trainings from papers that recover training data from the final weights alone."""

from typing import Any

from exhume.models.architecture import Architecture
from exhume.models.mlp import MLP
from exhume.training.settings import LossName


def max_margin_recipe(
    *,
    classes: int = 2,
    width: int = 1000,
    depth: int = 2,
    steps: int = 20_000,
    published: bool = False,
    model: Architecture | None = None,
) -> dict[str, Any]:
    """Return the arguments of :func:`exhume.train` for a training that continues far past separation.

    A small first layer, biases only there (so that the network is homogeneous), float64, full batches, and a
    cross-entropy without a stopping loss (Haim et al. 2022; Buzaglo et al. 2023). ``published`` takes the papers'
    million steps. By default the same flow is followed in steps a hundred times as long, through momentum 0.9 and
    ten times the learning rate.

    >>> max_margin_recipe(classes=10)["loss"]
    'ce'
    """
    two = classes == 2
    recipe = weight_decay_recipe(
        loss="bce" if two else "ce", weight_decay=0.0, width=width, depth=depth, steps=steps, model=model
    )
    return recipe | {"lr": 0.01 if two else 0.5, "momentum": 0.0, "steps": 1_000_000} if published else recipe


def weight_decay_recipe(
    *,
    loss: LossName = "mse",
    weight_decay: float = 3e-3,
    width: int = 1000,
    depth: int = 2,
    steps: int = 20_000,
    lr: float = 0.1,
    model: Architecture | None = None,
) -> dict[str, Any]:
    """Return the arguments of :func:`exhume.train` for a training that weight decay brings to a stationary point.

    The initial weights decay at the rate ``lr/(1 − momentum)·weight_decay`` per step, so the number of steps must be
    several times its inverse. Without weight decay the loss must be ``bce`` or ``ce``, or the weights stay where they
    first fit the data.
    """
    return {
        "model": model or small_first_layer(width, depth),
        "loss": loss,
        "lr": lr,
        "momentum": 0.9,
        "weight_decay": weight_decay,
        "steps": steps,
        "stop_loss": 0.0,
        "patience": 0,
        "precision": "float64",
    }


def small_first_layer(width: int = 1000, depth: int = 2) -> MLP:
    """Return the network of the papers: a first layer near zero, and no bias above it."""
    return MLP(width=width, depth=depth, bias="first", parameterisation="small-first-layer")
