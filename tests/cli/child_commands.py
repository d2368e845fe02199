"""Commands in child processes that are killed or interrupted at a chosen event, so that no test depends on a clock.

The children come from a fork server that has imported exhume and computed nothing: starting one takes no seconds, and
the process that forks has no threads of a computation.
"""

import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    [
        "exhume.cli.pipeline",
        "exhume.cli.sweep_jobs",
        "exhume.report.html",
        "exhume.sweeps",
        # What the first training and the first figure import; every child would spend two seconds on it.
        "torch._dynamo",
        "sklearn.datasets",
        "matplotlib.backends.backend_agg",
        "matplotlib.backends.backend_svg",
    ]
)


def nothing() -> None:
    """Let the command run to its end."""


def kill_at_write(ending: str, *, count: int = 1, before: bool = False) -> None:
    """Kill this process when the ``count``-th file whose path ends so is put in place, after that or just before."""
    replace, seen = os.replace, 0

    def watched(source: Any, target: Any) -> None:
        nonlocal seen
        is_last = (seen := seen + str(target).endswith(ending)) == count and str(target).endswith(ending)
        if not (is_last and before):
            replace(source, target)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = watched


def interrupt_at_report(number: int) -> None:
    """Send this process Ctrl-C at the ``number``-th progress report."""
    from exhume.cli.progress_bars import ProgressBars

    draw, seen = ProgressBars.__call__, 0

    def watched(self: ProgressBars, stage: str, done: int, total: int, note: str = "") -> None:
        nonlocal seen
        if (seen := seen + 1) == number:
            signal.raise_signal(signal.SIGINT)
        draw(self, stage, done, total, note)

    ProgressBars.__call__ = watched  # type: ignore[method-assign]


def limit_file_size(size: int) -> None:
    """Let no file grow beyond ``size`` bytes, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def run_in_child(arguments: list[str], output: Path, prepare: Callable[[], None] = nothing) -> int:
    """Run a command in a process of its own, and return its exit code; minus the number of the signal that killed it.

    Args:
        arguments: of the command.
        output: the file that standard output and standard error go to, as ``.out`` and ``.err``.
        prepare: called in the child first; a partial of a function of this module.
    """
    process = SERVER.Process(target=_run, args=(arguments, output, prepare))
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def _run(arguments: list[str], output: Path, prepare: Callable[[], None]) -> None:
    import torch

    from exhume.cli import main
    from exhume.core import checkpoint

    torch.set_num_threads(1)
    checkpoint.SAVE_SECONDS = 0.0  # so that short work has checkpoints too
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdout = output.with_suffix(".out").open("w", buffering=1)
    sys.stderr = output.with_suffix(".err").open("w", buffering=1)
    prepare()
    status = main(arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
