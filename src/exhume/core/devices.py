"""Devices that work runs on, and what this machine's CPU can do."""

import functools
import subprocess
import sys

import torch

from exhume.core.errors import ExhumeError

BFLOAT16_PROBE = """
import torch
ones = torch.ones(3, 128, 128, dtype=torch.bfloat16)
products = [ones[0] @ ones[0], torch.bmm(ones, ones), torch.nn.functional.linear(ones[0], ones[0], ones[0, 0])]
raise SystemExit(any(float(product.min()) < 128 for product in products))
"""
"""Program that multiplies small bfloat16 matrices in the ways that attacks do; it exits with 0 when that works."""
PROBE_SECONDS = 120.0
"""Seconds after which a probe counts as failed. Importing torch takes a few; a loaded machine may need many more."""
NUMBERS_ON_CPU = 2**22
"""Number of values in the largest intermediate result on a CPU: 32 MiB in float64, seconds of work at most."""
SHARE_OF_GPU = 32
"""The largest intermediate result on a GPU takes its memory divided by this."""


def numbers_at_once(device: torch.device) -> int:
    """Return the number of float64 values that an intermediate result may have; work that needs more is done in parts.

    >>> numbers_at_once(torch.device("cpu")) == NUMBERS_ON_CPU
    True
    """
    if device.type != "cuda":
        return NUMBERS_ON_CPU
    return int(torch.cuda.get_device_properties(device).total_memory) // (8 * SHARE_OF_GPU)


def resolve_device(device: str | torch.device) -> torch.device:
    """Return the device of this name; ``auto`` is a GPU where there is one, and the CPU elsewhere.

    >>> resolve_device("cpu")
    device(type='cpu')
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ExhumeError(f"There is no device {device!r}; choose auto, cpu or cuda.") from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ExhumeError("There is no CUDA device on this machine; choose auto or cpu.")
    return chosen


def has_fast_bfloat16() -> bool:
    """Return whether the CPU multiplies bfloat16 matrices in hardware, and does so without ending the process.

    With such instructions products take a fraction of the time of float32; without them they are emulated and slower.
    Some virtual machines announce the instructions (``amx_tile``) and refuse to execute them, which ends a process by
    SIGILL. So a child process tries them first, once per process.
    """
    return _announces_bfloat16() and runs_in_child(BFLOAT16_PROBE)


def _announces_bfloat16() -> bool:
    """Return whether the CPU flags name instructions for bfloat16; versions of torch can tell some or none of them."""
    questions = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(bool(getattr(torch.cpu, question, bool)()) for question in questions)


@functools.cache
def runs_in_child(program: str) -> bool:
    """Return whether a Python program ends normally in a child process; the answer is kept for this process."""
    if not sys.executable:  # Python is embedded in another program
        return False
    command = [sys.executable, "-P", "-c", program]
    try:
        ended = subprocess.run(command, capture_output=True, timeout=PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ended.returncode == 0
