"""Measure cells that do not depend on each other side by side, in several processes.

Small cells leave most of a GPU idle, and a good part of every cell is work for one core of the CPU. Processes write
finished cells to disk, so an interrupted study loses no more than the cells under way.
"""

import functools
import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from joblib import Parallel, delayed, parallel_config

from exhume.core.devices import resolve_device
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
    memory = torch.cuda.get_device_properties(chosen).total_memory
    return max(1, min((os.cpu_count() or 1) - FREE_CORES, memory // GPU_MEMORY_PER_JOB))


def measure_cells(run: StudyRun, cells: Sequence[SharedCell]) -> list[dict[str, Any]]:
    """Return the cells, each measured once; those that are not on disk are measured by ``run.jobs`` processes."""
    missing = {
        cell.about: cell for cell in cells if not run.is_measured(cell.name, cell.about, needed=cell.needed)
    }.values()
    if run.jobs > 1 and len(missing) > 1:
        quiet = replace(run, progress=no_progress, versions=Counter())
        threads = max(1, (os.cpu_count() or 1) // run.jobs)
        with parallel_config(backend="loky", inner_max_num_threads=threads):
            pool = Parallel(n_jobs=min(run.jobs, len(missing)), return_as="generator_unordered", batch_size=1)
            largest_first = sorted(missing, key=lambda cell: -cell.cost)
            for number, name in enumerate(pool(delayed(_measure)(quiet, cell) for cell in largest_first), 1):
                run.progress("cells", number, len(missing), name)
    return [
        run.shared_cell(cell.name, cell.about, functools.partial(cell.measure, run), needed=cell.needed)
        for cell in cells
    ]


def _measure(run: StudyRun, cell: SharedCell) -> str:
    """Measure a cell in a process of its own; its numbers are read from disk."""
    run.shared_cell(cell.name, cell.about, functools.partial(cell.measure, run), needed=cell.needed)
    return cell.name
