"""Ctrl-C: exit code 130, the state kept, the same command continues to the same end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from exhume.cli import main
from exhume.records import Victim
from exhume.studies.trial import Trial

TRAIN = [
    "train",
    "--data=digits",
    "--size=40",
    "--width=128",
    "--steps=3000",
    "--stop-loss=0",
    "--patience=0",
    "--device=cpu",
]


@pytest.mark.skipif(os.name == "nt", reason="signals are POSIX here")
def test_an_interrupted_training_continues(tmp_path: Path) -> None:
    checkpoint = tmp_path / "run" / "checkpoints" / "training.safetensors"
    command = [sys.executable, "-c", "import sys; from exhume.cli import main; sys.exit(main())"]
    process = subprocess.Popen(
        [*command, *TRAIN, f"--out={tmp_path / 'run'}"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "run").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.5)  # into the steps
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err.decode()
    assert b"is kept, and the same command continues" in err
    assert b"Traceback" not in err
    assert out == b""
    assert checkpoint.is_file()
    assert not (tmp_path / "run" / "victim.safetensors").exists()

    assert main([*TRAIN, f"--out={tmp_path / 'run'}", "--quiet"]) == 0
    assert not checkpoint.exists()
    assert main([*TRAIN, f"--out={tmp_path / 'whole'}", "--quiet"]) == 0
    continued, whole = (Victim.load(tmp_path / name / "victim.safetensors") for name in ("run", "whole"))
    assert continued.final.keys() == whole.final.keys()
    assert all((continued.final[name] == whole.final[name]).all() for name in whole.final)


def test_an_interrupted_study_says_what_is_kept_and_continues(
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
