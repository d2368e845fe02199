"""Ctrl-C: exit code 130, the state kept, the same command continues to the same end."""

import os
from functools import partial
from pathlib import Path

import pytest

from exhume.cli import main
from exhume.records import Victim
from exhume.studies.trial import Trial
from tests.cli.child_commands import interrupt_at_report, run_in_child

TRAIN = [
    "train",
    "--data=digits",
    "--size=40",
    "--width=64",
    "--steps=400",
    "--stop-loss=0",
    "--patience=0",
    "--device=cpu",
]


@pytest.mark.skipif(os.name == "nt", reason="signals are POSIX here")
def test_an_interrupted_training_continues(tmp_path: Path) -> None:
    checkpoint = tmp_path / "run" / "checkpoints" / "training.safetensors"
    arguments = [*TRAIN, f"--out={tmp_path / 'run'}"]
    assert run_in_child(arguments, tmp_path / "printed", partial(interrupt_at_report, 3)) == 130
    printed = (tmp_path / "printed.err").read_text()
    assert "is kept, and the same command continues" in printed
    assert "Traceback" not in printed
    assert (tmp_path / "printed.out").read_text() == ""
    assert checkpoint.is_file()
    assert not (tmp_path / "run" / "victim.safetensors").exists()

    assert main([*TRAIN, f"--out={tmp_path / 'run'}", "--quiet"]) == 0
    assert not checkpoint.exists()
    assert main([*TRAIN, f"--out={tmp_path / 'whole'}", "--quiet"]) == 0
    continued, whole = (Victim.load(tmp_path / name / "victim.safetensors") for name in ("run", "whole"))
    assert continued.final.keys() == whole.final.keys()
    assert all((continued.final[name] == whole.final[name]).all() for name in whole.final)


def test_an_interrupted_study_names_its_folder_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = ["reproduce", "fig2", "--preset=smoke", f"--out={tmp_path}"]
    measure, measured = Trial._measure, []

    def until_the_third(self: Trial, bench: object) -> object:
        measured.append(self)
        if len(measured) == 3:
            raise KeyboardInterrupt
        return measure(self, bench)  # type: ignore[arg-type]

    monkeypatch.setattr(Trial, "_measure", until_the_third)
    assert main(study) == 130
    assert f"{tmp_path} is kept, and the same command continues" in capsys.readouterr().err
    assert main(study) == 0
    assert len(measured) == 9, "eight cells, one of them begun twice"
