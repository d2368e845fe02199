"""Small data sets and reconstructions of known quality."""

import math
from typing import Any

import torch
from torch import Tensor

from exhume.records import Dataset, Outcome, Reconstruction, Split

SHAPES = ((1, 8, 8), (1, 25, 25), (3, 32, 32), (30,))


def make_data(shape: tuple[int, ...], size: int, *, seed: int = 0, holdout: int | None = None) -> Dataset:
    """Draw uniform noise; the columns of a table get very different units."""
    generator = torch.Generator().manual_seed(seed)
    table = len(shape) == 1

    def split(count: int) -> Split:
        inputs = torch.rand(count, *shape, generator=generator)
        columns = torch.logspace(-2, 3, math.prod(shape)) if table else 1.0
        return Split(inputs=inputs * columns, labels=torch.arange(count) % 2)

    return Dataset(
        name="synthetic",
        train=split(size),
        holdout=split(size if holdout is None else holdout),
        classes=("a", "b"),
        bounds=None if table else (0.0, 1.0),
        features=tuple(f"column {i}" for i in range(shape[0])) if table else None,
    )


def make_found(inputs: Tensor, **others: Any) -> Reconstruction:
    """Wrap inputs as what an attack returned, its confidence falling from the first to the last."""
    settings: dict[str, Any] = {
        "inputs": inputs,
        "certified": torch.zeros(len(inputs), dtype=torch.bool),
        "confidence": torch.linspace(1, 0, len(inputs)),
        "outcome": Outcome.CONVERGED,
        "attack": "Synthetic()",
        "seconds": 1.5,
    }
    return Reconstruction(**settings | others)
