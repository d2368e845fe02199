"""Reconstructions: parts that belong together, on one device."""

from pathlib import Path

import pytest
import torch

from exhume.core.errors import RecordError
from exhume.core.storage import save_bundle
from exhume.records import Outcome, Reconstruction


def test_parts_of_different_lengths_are_refused(path: Path) -> None:
    values = {"outcome": "converged"}
    parts = {"inputs": torch.zeros(3, 2), "certified": torch.zeros(3).bool(), "confidence": torch.zeros(2)}
    save_bundle(path, "reconstruction", values, parts)
    with pytest.raises(RecordError, match="3 inputs but 2 confidence"):
        Reconstruction.load(path)
    save_bundle(path, "reconstruction", values | {"inputs": [1, 2]}, parts | {"confidence": torch.zeros(3)})
    with pytest.raises(RecordError, match="inputs"):
        Reconstruction.load(path)


def test_moving_to_the_cpu_changes_nothing_there() -> None:
    found = Reconstruction(
        inputs=torch.zeros(2, 3),
        certified=torch.tensor([True, False]),
        confidence=torch.ones(2),
        outcome=Outcome.PARTIAL,
        diagnostics={"steps": 3},
    )
    assert found.cpu() == found
    assert len(found) == 2
