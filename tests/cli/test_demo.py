"""``exhume demo``."""

import json
from pathlib import Path

import pytest

from tests.cli.commands import AUDIT_KEYS, as_json


def test_the_demo_recovers_faces(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exhume.cli.demo.FACES", 12)  # of forty, in a small part of the time
    audit = as_json(capsys, "demo", f"--out={tmp_path}")
    assert audit.keys() >= AUDIT_KEYS
    assert audit == json.loads((tmp_path / "audit.json").read_text())
    assert audit["training_size"] == audit["training_size_estimate"] == 12
    # Some faces are nearly one picture; what they leave undetermined in others stays without a certificate.
    assert audit["exact"] >= 11
    assert audit["certified_examples"] >= 9
    assert audit["false_certificates"] == 0
    assert "GateCertificate" in audit["attack"]
    assert (tmp_path / "report.html").is_file()
    assert (tmp_path / "figures" / "gallery.png").is_file()


def test_the_demo_recovers_faces_from_a_checkpoint_without_initial_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exhume.cli.demo.FACES", 8)
    audit = as_json(capsys, "demo", "--evidence=checkpoint", f"--out={tmp_path}")
    assert audit["threat_model"]["initial weights"] is False
    assert audit["threat_model"]["optimiser state"]["optimiser"] == "AdamW"
    assert audit["exact"] >= 7
    assert audit["false_certificates"] == 0
