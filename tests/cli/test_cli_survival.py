"""Killed at any moment, or with the disk full, a command leaves a valid state, and the same command ends the same."""

import contextlib
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from exhume.cli import main
from exhume.core import checkpoint as checkpoint_files
from exhume.records import Reconstruction

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

ATTACKS = ["--attacks=gate-certificate,weight-difference", "--set=weight-difference.steps=1500", "--device=cpu"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    train = [
        "train",
        "--data=digits",
        "--classes=odd-even",
        "--size=10",
        "--width=256",
        "--depth=1",
        "--stop-loss=1e-4",
    ]
    assert main([*train, f"--out={folder}", "--quiet"]) == 0
    return folder


def forked(arguments: list[str], said: Path, before: Callable[[], None] = lambda: None) -> int:
    """Start a command in a process of its own, without the seconds that importing takes, and return its number."""
    child = os.fork()
    if child:
        return child
    try:
        torch.set_num_threads(1)
        checkpoint_files.SAVE_SECONDS = 0.05  # so that short work has checkpoints too
        with said.open("w", buffering=1) as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            before()
            status = main(arguments)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    finally:
        os._exit(99)


def killed_when(arguments: list[str], said: Path, moment: Callable[[], bool]) -> bool:
    """Kill a command as soon as something is seen on disk; tell whether it was still alive."""
    child = forked(arguments, said)
    deadline = time.monotonic() + 60
    while not moment() and time.monotonic() < deadline:
        if os.waitpid(child, os.WNOHANG)[0]:
            return False
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def timeless(account: Any) -> Any:
    """Return an account without what may differ between two runs: seconds, and where they were."""
    if isinstance(account, dict):
        return {key: timeless(value) for key, value in account.items() if key not in ("seconds", "notes")}
    return [timeless(item) for item in account] if isinstance(account, list) else account


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


def test_kill_at_any_moment_and_the_same_command_ends_the_same(trained: Path, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert main(["audit", str(trained), *ATTACKS, f"--out={whole}", "--quiet"]) == 0
    command = ["audit", str(trained), *ATTACKS, f"--out={cut}", "--quiet"]
    checkpoint = cut / "weight-difference" / "checkpoints" / "weight-difference.safetensors"
    moments: list[Callable[[], bool]] = [
        cut.exists,
        (cut / "gate-certificate" / "reconstruction.safetensors").exists,
        (cut / "gate-certificate" / "request.json").exists,
        checkpoint.exists,
        (cut / "weight-difference" / "reconstruction.safetensors").exists,
        (cut / "figures").exists,
    ]
    alive = 0
    for moment in moments:
        alive += killed_when(command, tmp_path / "said", moment)
        assert_whole(cut)
    assert alive >= 4, "most kills must find it at work"
    (cut / ".report.html.a1b2c3").write_text("<!doctype html>half a page")
    assert main(command) == 0
    assert not checkpoint.exists()
    assert not list(cut.glob(".*")), "what a killed command had half written is swept up"
    assert_whole(cut)
    first, second = (timeless(json.loads((folder / "audit.json").read_text())) for folder in (whole, cut))
    assert first == second
    for name in ("gate-certificate", "weight-difference"):
        one, other = (Reconstruction.load(folder / name / "reconstruction.safetensors") for folder in (whole, cut))
        assert torch.equal(one.inputs, other.inputs)


def test_a_checkpoint_is_continued_from_and_not_begun_again(trained: Path, tmp_path: Path) -> None:
    place = tmp_path / "weight-difference"
    command = ["attack", str(trained), *ATTACKS[1:], "--attack=weight-difference", f"--out={place}", "--quiet"]
    checkpoint = place / "checkpoints" / "weight-difference.safetensors"
    assert killed_when(command, tmp_path / "said", checkpoint.exists)
    before = checkpoint.read_bytes()
    checkpoint.write_bytes(before[: len(before) // 2])
    assert main(command) == 2, "a damaged checkpoint is said to be damaged, so it was read"
    checkpoint.write_bytes(before)
    assert main(command) == 0


@pytest.mark.parametrize("room", [2_000, 60_000])
def test_a_full_disk_is_one_sentence_and_a_valid_state(room: int, trained: Path, tmp_path: Path) -> None:
    def little_room() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    out, said = tmp_path / "out", tmp_path / "said"
    command = ["audit", str(trained), "--attacks=gate-certificate", f"--out={out}", "--quiet"]
    status = os.waitstatus_to_exitcode(os.waitpid(forked(command, said, little_room), 0)[1])
    assert status == 2
    assert len(said.read_text().splitlines()) == 1
    assert said.read_text().startswith("exhume: ")
    assert_whole(out)
    assert not list(out.rglob(".*")), "no half-written file stays behind"
    assert main(command) == 0


def test_settings_that_changed_do_not_continue_what_is_there(trained: Path, tmp_path: Path) -> None:
    command = ["attack", str(trained), "--attack=weight-difference", f"--out={tmp_path}", "--quiet"]
    assert main([*command, "--set=steps=5"]) == 0
    first = Reconstruction.load(tmp_path / "reconstruction.safetensors")
    assert main([*command, "--set=steps=6"]) == 0
    second = Reconstruction.load(tmp_path / "reconstruction.safetensors")
    assert "steps=6" in second.attack
    assert not torch.equal(first.inputs, second.inputs)


@pytest.mark.parametrize("writes", range(6))
def test_a_training_killed_at_any_of_its_writes_is_taken_up_by_the_same_command(writes, tmp_path, monkeypatch):
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
