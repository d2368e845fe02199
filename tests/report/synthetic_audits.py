"""Audits to report on, of every kind of input."""

from typing import Any

import torch

from exhume.evaluation import evaluate
from exhume.records import Dataset, Evaluation, Outcome, Reconstruction, Split

SHAPES = ((1, 8, 8), (1, 25, 25), (3, 32, 32), (8, 8), (30,))


def make_audit(shape: tuple[int, ...] = (1, 8, 8), *, known: bool = True, **others: Any) -> Evaluation:
    """Audit eight examples: four copied with a proof, two copied without, two lost, one certificate false."""
    generator = torch.Generator().manual_seed(0)
    train, holdout = (torch.rand(8, *shape, generator=generator) for _ in range(2))
    names = {"name": others.pop("name", "synthetic"), "classes": others.pop("classes", ("cat", "dog"))}
    data = Dataset(
        **names,
        train=Split(inputs=train, labels=torch.arange(8) % 2),
        holdout=Split(inputs=holdout, labels=torch.arange(8) % 2),
        bounds=None if len(shape) == 1 else (0.0, 1.0),
        features=others.pop("features", None),
    )
    inputs = torch.cat([train[:6], torch.rand(3, *shape, generator=generator)])
    settings: dict[str, Any] = {
        "inputs": inputs,
        "certified": torch.tensor([True] * 4 + [False] * 2 + [True] + [False] * 2),
        "confidence": torch.linspace(1, 0, 9),
        "p_values": torch.full((9,), 1e-13, dtype=torch.float64),
        "outcome": Outcome.PARTIAL,
        "attack": "Synthetic()",
        "diagnostics": {"training_size_estimate": 8, "singular_values": [4.0, 2.0, 1.0] * 3 + [1e-6, 0.0]},
    }
    return evaluate(Reconstruction(**settings | others), data if known else None)
