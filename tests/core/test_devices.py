"""Devices: names are resolved or refused, and bfloat16 is used only where a child process survived it."""

import subprocess

import pytest
import torch

from exhume.core import devices
from exhume.core.devices import BFLOAT16_PROBE, has_fast_bfloat16, resolve_device, runs_in_child
from exhume.core.errors import ExhumeError

DIES = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"


def test_auto_is_a_device_of_this_machine():
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("name", ["gpu9", "", "cpu:x"])
def test_an_unknown_device_is_refused(name):
    with pytest.raises(ExhumeError, match="choose auto, cpu or cuda"):
        resolve_device(name)


def test_a_missing_gpu_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ExhumeError, match="no CUDA device"):
        resolve_device("cuda")


@pytest.mark.parametrize(
    ("program", "survives"),
    [("pass", True), (DIES, False), ("raise SystemExit(1)", False), ("import no_such_module", False)],
)
def test_a_probe_reports_how_its_child_ended(program, survives):
    assert runs_in_child(program) is survives


def test_a_cpu_whose_instructions_end_the_process_has_no_fast_bfloat16(monkeypatch):
    monkeypatch.setattr(devices, "_announces_bfloat16", lambda: True)
    monkeypatch.setattr(devices, "BFLOAT16_PROBE", DIES)
    assert has_fast_bfloat16() is False


def test_a_cpu_that_announces_nothing_is_not_probed(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a child was started")

    monkeypatch.setattr(devices, "_announces_bfloat16", lambda: False)
    monkeypatch.setattr(devices, "runs_in_child", refuse)
    assert has_fast_bfloat16() is False


@pytest.mark.parametrize("failure", [OSError("no such program"), subprocess.TimeoutExpired("python", 1.0)])
def test_a_probe_that_cannot_end_counts_as_failed(monkeypatch, failure):
    def fail(*_, **__):
        raise failure

    monkeypatch.setattr(subprocess, "run", fail)
    assert runs_in_child.__wrapped__("pass") is False


def test_the_answer_is_kept(monkeypatch):
    program = "pass  # asked twice"
    assert runs_in_child(program)
    monkeypatch.setattr(subprocess, "run", None)
    assert runs_in_child(program)


def test_the_probe_is_a_program_that_a_sound_cpu_passes():
    """Only on a CPU whose flags are true; elsewhere the products are emulated, which is slow but no danger here."""
    if devices._announces_bfloat16() and not runs_in_child(BFLOAT16_PROBE):
        pytest.skip("this machine announces bfloat16 and refuses it")
    assert runs_in_child(BFLOAT16_PROBE)
