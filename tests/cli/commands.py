"""Commands that tests share."""

import json
from typing import Any

import pytest

from exhume.cli import main

AUDIT_KEYS = {
    "schema_version", "dataset", "attack", "candidates", "training_size", "curve", "holdout_curve", "ssim",
    "recovered_at_fpr", "seconds", "certified", "false_certificates", "training_size_estimate",
}  # fmt: skip
TRAIN = ["train", "--data=digits", "--classes=odd-even", "--size=12", "--width=256", "--depth=1", "--stop-loss=1e-4"]


def as_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    """Run a command with ``--json`` and return its result."""
    capsys.readouterr()
    assert main([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)
