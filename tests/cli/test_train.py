"""``exhume train``: what it writes, and that it neither repeats nor replaces work."""

import json
from pathlib import Path

import pytest

import exhume
from exhume.cli import main
from tests.cli.commands import TRAIN, as_json


def test_training_writes_a_run(trained: Path) -> None:
    assert {path.name for path in trained.iterdir()} >= {"data.safetensors", "victim.safetensors", "training.json"}
    assert not (trained / "checkpoints").exists()
    victim, data = (
        exhume.Victim.load(trained / "victim.safetensors"),
        exhume.Dataset.load(trained / "data.safetensors"),
    )
    assert data == exhume.load("digits", classes="odd-even", size=12)
    again = exhume.train(data, model=victim.architecture, **victim.training)
    assert all((again.final[name] == weight).all() for name, weight in victim.final.items())


def test_the_same_training_is_not_done_twice(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (trained / "victim.safetensors").stat().st_mtime_ns
    account = as_json(capsys, *TRAIN, f"--out={trained}")
    assert account == json.loads((trained / "training.json").read_text())
    assert (trained / "victim.safetensors").stat().st_mtime_ns == before


def test_overwrite_replaces_the_network_and_what_was_found_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = [*TRAIN, f"--out={tmp_path}", "--quiet"]
    assert main(first) == 0
    assert main(["attack", str(tmp_path), "--quiet"]) == 0
    assert main(["audit", str(tmp_path), "--attack=weight-difference", "--set=steps=5", "--quiet"]) == 0
    assert main([*first, "--size=10", "--overwrite"]) == 0
    assert not list(tmp_path.rglob("result.json"))
    assert not list(tmp_path.rglob("reconstruction.safetensors")), "nor what an audit found"
    assert len(exhume.Dataset.load(tmp_path / "data.safetensors").train) == 10


def test_a_residual_network_is_trained_with_the_blocks_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = ["--architecture=resnet", "--channels=2", "--blocks=1,1", "--steps=2"]
    account = as_json(capsys, "train", "--data=digits", "--size=10", *network, f"--out={tmp_path}")
    assert account["architecture"] == {"kind": "ResNet", "channels": 2, "blocks": [1, 1]}
    assert (
        main(["train", "--data=digits", "--size=10", "--architecture=resnet", "--blocks=a", f"--out={tmp_path}"]) != 0
    )
    assert "--blocks takes whole numbers" in capsys.readouterr().err
