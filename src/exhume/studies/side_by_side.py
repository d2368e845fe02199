"""Measure cells that do not depend on each other side by side, in several processes.

Small cells leave most of a GPU idle, and a good part of every cell is work for one core of the CPU. Processes write
finished cells to disk, so an interrupted study loses no more than the cells under way.
"""

import functools
import signal
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import torch
from joblib import Parallel, cpu_count, delayed, parallel_config
from joblib.externals.loky import get_reusable_executor

from exhume.core.devices import resolve_device
from exhume.core.errors import ExhumeError
from exhume.core.progress import no_progress
from exhume.studies.study import StudyRun

GPU_MEMORY_PER_JOB = 8 * 2**30
"""Bytes. The largest cells, 32 runs of 1 000 candidates at the papers' size, take about 6 GiB."""
FREE_CORES = 2
"""Cores left to the command itself and to the driver of the GPU."""


@dataclass(frozen=True, kw_only=True)
class SharedCell:
    """A measurement that several studies may share."""

    name: str
    """Part of the file name."""
    about: str
    """Everything the result depends on."""
    measure: Callable[[StudyRun], Mapping[str, Any]]
    """A function that other processes can import, or a partial of one."""
    needed: Collection[str] = ()
    """Keys that the study reads."""
    cost: int = 0
    """Relative size; large cells start first."""


def choose_jobs(device: str) -> int:
    """Return the number of processes that suit a device: one on a CPU, all of whose cores one process can use.

    >>> choose_jobs("cpu")
    1
    """
    chosen = resolve_device(device)
    if chosen.type != "cuda":
        return 1
    free, _ = torch.cuda.mem_get_info(chosen)
    return max(1, min(int(cpu_count()) - FREE_CORES, int(free) // GPU_MEMORY_PER_JOB))


def measure_cells(run: StudyRun, cells: Sequence[SharedCell]) -> list[dict[str, Any]]:
    """Return the cells, each measured once; those that are not on disk are measured by ``run.jobs`` processes.

    Raises:
        ExhumeError: when a process died. Finished cells are kept.
    """
    missing = {
        cell.about: cell for cell in cells if not run.is_measured(cell.name, cell.about, needed=cell.needed)
    }.values()
    if run.jobs > 1 and len(missing) > 1:
        _measure_in_processes(run, sorted(missing, key=lambda cell: -cell.cost))
    return [
        run.shared_cell(cell.name, cell.about, functools.partial(cell.measure, run), needed=cell.needed)
        for cell in cells
    ]


def _measure_in_processes(run: StudyRun, cells: Sequence[SharedCell]) -> None:
    """Measure cells in processes of their own, which write them to disk."""
    quiet = replace(run, progress=no_progress, versions=Counter())
    threads = max(1, cpu_count() // run.jobs)
    pool = Parallel(n_jobs=min(run.jobs, len(cells)), return_as="generator_unordered", batch_size=1)
    with (
        warnings.catch_warnings(),
        _watch_interrupts() as was_interrupted,
        parallel_config(backend="loky", inner_max_num_threads=threads),
    ):
        warnings.filterwarnings("ignore", "[0-9]+ tasks which were still being processed")  # after an interrupt
        try:
            for number, name in enumerate(pool(delayed(_measure)(quiet, cell) for cell in cells), 1):
                run.progress("cells", number, len(cells), name)
        except BrokenExecutor as error:
            if was_interrupted():  # processes that had just started were interrupted as well
                raise KeyboardInterrupt from error
            raise ExhumeError(
                "A process that measured cells died, perhaps for want of memory. Finished cells are kept: run the same "
                "command again, with fewer --jobs."
            ) from error
        finally:
            get_reusable_executor(reuse=True, kill_workers=True).shutdown(wait=True, kill_workers=True)


def _measure(run: StudyRun, cell: SharedCell) -> str:
    """Measure a cell in a process of its own; its numbers are read from disk."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal interrupts all processes; the first one ends the others
    run.shared_cell(cell.name, cell.about, functools.partial(cell.measure, run), needed=cell.needed)
    return cell.name


@contextmanager
def _watch_interrupts() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether this process was interrupted since, besides what that causes anyway."""
    if threading.current_thread() is not threading.main_thread():  # others receive no signals
        yield lambda: False
        return
    seen = False
    usual = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen = True
        if callable(usual):
            usual(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: seen
    finally:
        signal.signal(signal.SIGINT, usual)
