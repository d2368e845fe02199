"""``exhume attack``: restarts, attacks that apply, and results of earlier attacks."""

from pathlib import Path

import pytest

import exhume
from exhume.cli import main
from tests.cli.commands import as_json


def test_a_new_attack_removes_the_old_verdict(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    for name in ("audit.json", "report.html", "figures/curve.png"):
        (tmp_path / name).write_text("of another attack")
    assert main(["attack", str(trained), "--quiet", f"--out={tmp_path}"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        "reconstruction.safetensors",
        "request.json",
        "result.json",
    }


def test_restarts_keep_the_best_of_several_starts(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    search = ("attack", trained, "--attack=weight-difference", "--set=steps=20", f"--out={tmp_path}")
    assert "Restarted(" in as_json(capsys, *search, "--restarts=3")["attack"]
    assert (
        len(exhume.Reconstruction.load(tmp_path / "reconstruction.safetensors").diagnostics["restarts"]["objectives"])
        == 3
    )
    assert main([*map(str, search), "--restarts=0"]) == 2
    assert set(as_json(capsys, "evaluate", tmp_path, f"--data={trained}")["attacks"]) == {"weight-difference"}


def test_a_quiet_attack_prints_nothing(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["attack", str(trained), f"--out={tmp_path}", "--quiet"]) == 0
    assert main(["evaluate", str(tmp_path), "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_an_attack_that_applies_is_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = ["train", "--data=digits", "--size=10", "--architecture=convnet", "--channels=4", "--stop-loss=0.01"]
    assert main([*train, f"--out={tmp_path}", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["attack", str(tmp_path), "--set=candidates=20", "--set=steps=5"]) == 0
    said = capsys.readouterr()
    assert "gate-certificate does not apply" in said.err
    assert "WeightDifference" in said.out
