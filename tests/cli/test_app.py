"""The ``exhume`` command itself: help, version and exit codes."""

import subprocess
import sys
from pathlib import Path

import pytest

import exhume
from exhume.cli import main


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"exhume {exhume.__version__}\n"
    for command in (["--help"], ["train", "--help"], ["attack", "--help"], ["data", "fetch", "--help"]):
        assert main(command) == 0
        assert "Usage" in capsys.readouterr().out


def test_the_installed_command_returns_exit_codes() -> None:
    command = Path(sys.executable).parent / "exhume"
    done = subprocess.run([command, "data", "show", "nowhere"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("exhume: There is no source 'nowhere'")
