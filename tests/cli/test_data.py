"""``exhume data``: list and show sources."""

import json
from pathlib import Path

import pytest

import exhume
from exhume.cli import main
from tests.cli.commands import as_json


def test_sources_are_listed_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = as_json(capsys, "data", "list", f"--out={tmp_path}")
    assert {"digits", "faces", "mnist"} <= {source["name"] for source in listed["sources"]}
    assert json.loads((tmp_path / "sources.json").read_text()) == listed
    shown = as_json(capsys, "data", "show", "faces", "--size=10", f"--out={tmp_path}")
    assert shown["classes"]["face"] == {"train": 5, "holdout": 5, "test": 90}
    assert exhume.Dataset.load(tmp_path / "data.safetensors") == exhume.load("faces", size=10)
    assert main(["data", "list"]) == 0
    assert "bundled" in capsys.readouterr().out
