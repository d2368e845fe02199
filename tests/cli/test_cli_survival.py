"""A command that is killed, or runs out of disk, leaves a valid state; the same command then ends the same."""

import contextlib
import json
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from exhume.cli import main
from exhume.records import Reconstruction
from tests.cli.child_commands import kill_at_write, limit_file_size, run_in_child

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are POSIX here")

ATTACKS = ["--attacks=gate-certificate,weight-difference", "--set=weight-difference.steps=60", "--device=cpu"]
CHECKPOINT = "/weight-difference.safetensors"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    train = [
        "train", "--data=digits", "--classes=odd-even", "--size=6", "--width=128", "--depth=1", "--stop-loss=1e-4",
    ]  # fmt: skip
    assert main([*train, f"--out={folder}", "--quiet"]) == 0
    return folder


def without_times(result: Any) -> Any:
    """Return a result without what may differ between two runs: seconds, and folders."""
    if isinstance(result, dict):
        return {key: without_times(value) for key, value in result.items() if key not in ("seconds", "notes")}
    return [without_times(item) for item in result] if isinstance(result, list) else result


def assert_whole(folder: Path) -> None:
    """Make sure that what lies in a folder, besides hidden files of the moment of death, is whole."""
    for path in folder.rglob("*"):
        if path.name.startswith("."):
            continue
        if path.suffix == ".json":
            json.loads(path.read_text())
        if path.name == "reconstruction.safetensors":
            Reconstruction.load(path)
        if path.suffix == ".html":
            assert path.read_text().endswith("</html>")


WRITES = [
    ("gate-certificate/reconstruction.safetensors", 1, True),
    ("gate-certificate/request.json", 1, False),
    (CHECKPOINT, 1, False),
    (CHECKPOINT, 1, True),
    ("weight-difference/reconstruction.safetensors", 1, False),
    ("weight-difference/result.json", 1, True),
    (".png", 1, False),
    ("report.html", 1, True),
    ("audit.json", 1, True),
]
"""Files, in the order in which an audit writes them, and whether it is killed before the file is in place or after."""


def test_an_audit_killed_at_any_of_its_writes_ends_the_same(trained: Path, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert run_in_child(["audit", str(trained), *ATTACKS, f"--out={whole}", "--quiet"], tmp_path / "whole_run") == 0
    command = ["audit", str(trained), *ATTACKS, f"--out={cut}", "--quiet"]
    for ending, count, before in WRITES:
        kill = partial(kill_at_write, ending, count=count, before=before)
        assert run_in_child(command, tmp_path / "run", kill) == -signal.SIGKILL, f"{ending} was not written"
        assert_whole(cut)
    (cut / ".report.html.a1b2c3").write_text("<!doctype html>half a page")
    assert run_in_child(command, tmp_path / "run") == 0
    assert not (cut / "weight-difference" / "checkpoints").exists()
    assert not list(cut.glob(".*")), "half-written files of a killed command are removed"
    assert_whole(cut)
    first, second = (without_times(json.loads((folder / "audit.json").read_text())) for folder in (whole, cut))
    assert first == second
    for name in ("gate-certificate", "weight-difference"):
        one, other = (Reconstruction.load(folder / name / "reconstruction.safetensors") for folder in (whole, cut))
        assert torch.equal(one.inputs, other.inputs)


def test_work_continues_from_a_checkpoint(trained: Path, tmp_path: Path) -> None:
    place = tmp_path / "weight-difference"
    command = ["attack", str(trained), *ATTACKS[1:], "--attack=weight-difference", f"--out={place}", "--quiet"]
    kill = partial(kill_at_write, CHECKPOINT, count=1)
    assert run_in_child(command, tmp_path / "run", kill) == -signal.SIGKILL
    (checkpoint,) = place.rglob(CHECKPOINT[1:])
    before = checkpoint.read_bytes()
    checkpoint.write_bytes(before[: len(before) // 2])
    assert main(command) == 2, "a damaged checkpoint is reported, so it was read"
    checkpoint.write_bytes(before)
    assert main(command) == 0


@pytest.mark.parametrize("room", [2_000, 60_000])
def test_a_full_disk_is_one_sentence_and_a_valid_state(room: int, trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["audit", str(trained), "--attacks=gate-certificate", f"--out={out}", "--quiet"]
    assert run_in_child(command, tmp_path / "run", partial(limit_file_size, room)) == 2
    printed = (tmp_path / "run.err").read_text()
    assert len(printed.splitlines()) == 1
    assert printed.startswith("exhume: ")
    assert_whole(out)
    assert not list(out.rglob(".*")), "no half-written file stays behind"
    assert main(command) == 0


def test_changed_settings_do_not_continue_a_checkpoint(trained: Path, tmp_path: Path) -> None:
    command = ["attack", str(trained), "--attack=weight-difference", f"--out={tmp_path}", "--quiet"]
    assert main([*command, "--set=steps=5"]) == 0
    first = Reconstruction.load(tmp_path / "reconstruction.safetensors")
    assert main([*command, "--set=steps=6"]) == 0
    second = Reconstruction.load(tmp_path / "reconstruction.safetensors")
    assert "steps=6" in second.attack
    assert not torch.equal(first.inputs, second.inputs)


@pytest.mark.parametrize("writes", range(6))
def test_a_training_killed_at_any_of_its_writes_is_continued(writes, tmp_path, monkeypatch):
    train = ["train", "--data=digits", "--classes=odd-even", "--size=6", "--width=32", "--steps=20", "--quiet"]
    left, replace = writes, os.replace

    def dying(*paths: Any) -> None:
        nonlocal left
        if left == 0:
            raise SystemExit(9)
        left -= 1
        replace(*paths)

    with monkeypatch.context() as patched, contextlib.suppress(SystemExit):
        patched.setattr(os, "replace", dying)
        main([*train, f"--out={tmp_path}"])
    assert main([*train, f"--out={tmp_path}"]) == 0
    assert json.loads((tmp_path / "training.json").read_text())["training_size"] == 6
