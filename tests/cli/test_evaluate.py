"""``exhume evaluate``: the same findings as an audit, for every result in a folder."""

import json
from pathlib import Path

import pytest

from exhume.cli import main
from tests.cli.commands import AUDIT_KEYS, as_json


def test_attack_and_evaluate_find_the_same_as_an_audit(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = as_json(capsys, "attack", trained, "--attack=gate-certificate", "--seed=3", "--device=cpu")
    assert result["certified"] > 0
    assert result["curve"] is None, "an attack knows no data"
    assert json.loads((trained / "result.json").read_text()) == result
    evaluated = as_json(capsys, "evaluate", trained, "--seed=3", "--device=cpu")
    out = f"--out={tmp_path / 'audit'}"
    audited = as_json(capsys, "audit", trained, "--attack=gate-certificate", "--seed=3", "--device=cpu", out)
    assert audited.keys() >= AUDIT_KEYS
    assert evaluated["verdict"] == audited["verdict"]
    for findings in (evaluated, audited):
        for apart in ("seconds", "applicability", "notes", "attacks"):
            findings.pop(apart)
    assert evaluated == audited
    for folder in (trained, tmp_path / "audit"):
        assert (folder / "report.html").read_text().startswith("<!doctype html>")
        figures = {path.name for path in (folder / "figures").iterdir()}
        assert figures >= {"gallery.png", "gallery.svg", "curve.png", "curve.svg"}
        assert not list(folder.rglob(".*")), "no temporary file is left"
    assert not (tmp_path / "audit" / "data.safetensors").exists()


def test_results_of_one_attack_in_the_folder_and_in_a_sub_folder_are_both_kept(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = ["--attack=weight-difference", f"--out={tmp_path}"]
    assert main(["attack", str(trained), *one, "--set=steps=5", "--quiet"]) == 0
    assert main(["audit", str(trained), *one, "--set=steps=9", "--quiet"]) == 0
    results = as_json(capsys, "evaluate", tmp_path, f"--data={trained}")["attacks"]
    assert set(results) == {"weight-difference", "weight-difference-in-run-folder"}
    assert "steps=9" in results["weight-difference"]["attack"]
    assert "steps=5" in results["weight-difference-in-run-folder"]["attack"]
    assert "weight-difference-in-run-folder" in (tmp_path / "report.html").read_text()
