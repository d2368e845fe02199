"""Measure cells side by side, in several processes, each as soon as the cells that it builds on are measured.

Small cells leave most of a GPU idle, and a good part of every cell is work for one core of the CPU. Processes write
finished cells to disk, so an interrupted study loses no more than the cells under way.
"""

import functools
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import torch
from joblib import cpu_count
from joblib.externals.loky import get_reusable_executor

from exhume.core.devices import resolve_device
from exhume.core.errors import ExhumeError
from exhume.core.progress import no_progress
from exhume.studies.study import StudyRun

GPU_MEMORY_PER_JOB = 8 * 2**30
"""Bytes. The largest cells, 32 runs of 1 000 candidates at the papers' size, take about 6 GiB."""
FREE_CORES = 2
"""Cores left to the command itself and to the driver of the GPU."""
IDLE_SECONDS = 600
"""Time after which a process without work ends; another cell may become ready while the others are measured."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Environment variables that limit the threads of a process."""


Found = Mapping[str, Any]
"""The numbers and tensors of a measured cell."""


def call_for_nothing(found: Found) -> "Sequence[SharedCell]":
    """Return no further cells."""
    return ()


@dataclass(frozen=True, kw_only=True)
class SharedCell:
    """A measurement that several studies may share."""

    name: str
    """Part of the file name."""
    about: str
    """Everything the result depends on."""
    measure: Callable[[StudyRun], Found]
    """A function that other processes can import, or a partial of one."""
    needed: Collection[str] = ()
    """Keys that the study reads."""
    cost: int = 0
    """Relative size; large cells start first."""
    then: "Callable[[Found], Sequence[SharedCell]]" = call_for_nothing
    """Return the cells that build on this one."""

    def find(self, run: StudyRun) -> dict[str, Any] | None:
        """Return the cell from disk; None where it has not been measured."""
        return run.find_shared_cell(self.name, self.about, needed=self.needed)

    def read_or_measure(self, run: StudyRun) -> dict[str, Any]:
        """Return the cell from disk, or measure it."""
        return run.shared_cell(self.name, self.about, functools.partial(self.measure, run), needed=self.needed)


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


def measure_cells(run: StudyRun, cells: Sequence[SharedCell]) -> dict[str, dict[str, Any]]:
    """Measure cells and all that build on them, with ``run.jobs`` processes; return them by what they are about.

    Raises:
        ExhumeError: when a process died. Finished cells are kept.
    """
    if run.jobs > 1:
        _measure_in_processes(run, cells)
    found: dict[str, dict[str, Any]] = {}
    waiting = deque(cells)
    while waiting:
        cell = waiting.popleft()
        if cell.about not in found:
            found[cell.about] = cell.read_or_measure(run)
        waiting.extend(cell.then(found[cell.about]))
    return found


class _Schedule:
    """The cells that are still missing: which can be measured, and which wait for a cell under way."""

    def __init__(self, run: StudyRun, cells: Sequence[SharedCell]) -> None:
        self.run, self.ready = run, list[SharedCell]()
        self.pending: dict[str, list[SharedCell]] = {}
        """Requests for each missing cell, by what it is about: each may be followed by other cells."""
        self.finished = 0
        self.add(cells)

    def add(self, cells: Sequence[SharedCell]) -> None:
        """Add cells, or where they are on disk what builds on them."""
        for cell in cells:
            if cell.about in self.pending:
                self.pending[cell.about].append(cell)
            elif (found := cell.find(self.run)) is not None:
                self.add(cell.then(found))
            else:
                self.pending[cell.about] = [cell]
                self.ready.append(cell)

    def take(self) -> SharedCell:
        """Take the largest cell that can be measured."""
        self.ready.sort(key=lambda cell: cell.cost)
        return self.ready.pop()

    def finish(self, cell: SharedCell) -> None:
        """Note that a cell is on disk, and add what builds on it."""
        self.finished += 1
        if (found := cell.find(self.run)) is None:
            raise ExhumeError(
                f"The cell {cell.name} was measured, but cannot be read back, or lacks what the study reads. Is the "
                "disk full?"
            )
        for asked in self.pending.pop(cell.about):
            self.add(asked.then(found))
        self.run.progress("cells", self.finished, self.finished + len(self.pending), cell.name)


def _measure_in_processes(run: StudyRun, cells: Sequence[SharedCell]) -> None:
    """Measure missing cells in processes of their own, which write them to disk."""
    schedule = _Schedule(run, cells)
    if not schedule.pending:
        return
    quiet = replace(run, progress=no_progress, versions=Counter())
    threads = str(max(1, cpu_count() // run.jobs))
    with _watch_interrupts() as was_interrupted:
        pool = get_reusable_executor(
            max_workers=run.jobs, timeout=IDLE_SECONDS, env=dict.fromkeys(THREAD_VARIABLES, threads)
        )
        under_way: dict[Future[None], SharedCell] = {}
        try:
            while schedule.pending:
                while schedule.ready and len(under_way) < run.jobs:
                    cell = schedule.take()
                    under_way[pool.submit(_measure, quiet, replace(cell, then=call_for_nothing))] = cell
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    future.result()
                    schedule.finish(under_way.pop(future))
        except BrokenExecutor as error:
            if was_interrupted():  # processes that had just started were interrupted as well
                raise KeyboardInterrupt from error
            raise ExhumeError(
                "A process that measured cells died, perhaps for want of memory. Finished cells are kept: run the same "
                "command again, with fewer --jobs."
            ) from error
        finally:
            pool.shutdown(wait=True, kill_workers=True)


def _measure(run: StudyRun, cell: SharedCell) -> None:
    """Measure a cell in a process of its own; its numbers are read from disk."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal interrupts all processes; the first one ends the others
    cell.read_or_measure(run)


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
