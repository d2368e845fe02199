"""Run a sweep: skip finished tasks, run the others, and write one table and one page of all."""

import fcntl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from exhume.core.errors import ExhumeError
from exhume.core.progress import Progress, no_progress
from exhume.core.storage import write_atomically
from exhume.sweeps.jobs import Job, TaskRecord
from exhume.sweeps.summary_page import render_page
from exhume.sweeps.sweep_file import Sweep
from exhume.sweeps.table import Table, write_csv

TABLE, PAGE = "table.csv", "summary.html"
WRITE_INTERVAL_SECONDS = 10.0
"""Seconds between updates of the table and the page while tasks end; more where writing takes long."""
WRITE_SHARE = 0.05
"""Largest share of time spent on these updates; a table of 100 000 rows takes half a minute to write."""


@runtime_checkable
class Engine(Protocol):
    """Runs jobs, on this machine or on others, one by one or in parallel."""

    def check(self) -> None:
        """Raise :class:`~exhume.core.errors.ExhumeError` when the engine cannot run at all."""
        ...

    def run(self, jobs: Sequence[Job]) -> Iterator[TaskRecord]:
        """Yield the record of each job as it ends, in any order."""
        ...


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """The records of a sweep, and the files that summarise them."""

    records: tuple[TaskRecord, ...]
    """Records of the tasks that ended, in the order of the tasks."""
    tasks: int
    found: int
    """Number of tasks that an earlier call finished."""
    table: Path
    page: Path

    @property
    def failed(self) -> tuple[TaskRecord, ...]:
        """The tasks that failed."""
        return tuple(record for record in self.records if record.state == "failed")


def run_sweep(
    sweep: Sweep,
    jobs: Sequence[Job],
    engine: Engine,
    folder: Path,
    *,
    title: str = "sweep",
    command: str = "",
    progress: Progress = no_progress,
) -> SweepResult:
    """Run the jobs that are not done yet, and write the table and the page of all.

    After an interruption the same call continues: finished tasks are not run again, failed tasks are. The table always
    holds the tasks that have ended so far.

    Args:
        sweep: the sweep that the jobs belong to.
        jobs: one job per task, in the order of the table.
        engine: runs the jobs.
        folder: the folder for the table and the page.
        title: title of the page.
        command: the command that repeats the sweep, printed on the page.
        progress: callback that receives the number of tasks that ended.
    """
    engine.check()
    kept = {job.key: TaskRecord.load(job.folder) for job in jobs}
    records = {key: record for key, record in kept.items() if record is not None and record.state == "done"}
    folders = {job.key: job.folder for job in jobs}
    found, due = len(records), time.monotonic() + WRITE_INTERVAL_SECONDS

    def summarise() -> SweepResult:
        ended = tuple(records[job.key] for job in jobs if job.key in records)
        return SweepResult(records=ended, tasks=len(jobs), found=found, table=folder / TABLE, page=folder / PAGE)

    with _lock(folder):
        try:
            progress("tasks", found, len(jobs), _count_failed(records))
            # New tasks first: one that kills the process, for example by using too much memory, then delays no other.
            left = sorted((job for job in jobs if job.key not in records), key=lambda job: job.folder.exists())
            for record in engine.run(left) if left else ():
                records[record.key] = record
                _keep(record, folders[record.key])
                progress("tasks", len(records), len(jobs), _count_failed(records))
                if (begun := time.monotonic()) > due:
                    _write(sweep, summarise(), title, command)
                    ended = time.monotonic()
                    due = ended + max(WRITE_INTERVAL_SECONDS, (ended - begun) / WRITE_SHARE)
        finally:
            if records:
                _write(sweep, summarise(), title, command)
    return summarise()


def _keep(record: TaskRecord, folder: Path) -> None:
    """Save a record here too if the machine that ran the task shares no disk with this one, or died before it could."""
    if TaskRecord.load(folder) != record:
        record.save(folder)


def _write(sweep: Sweep, result: SweepResult, title: str, command: str) -> None:
    table = Table.of(sweep, result.records)
    write_atomically(result.table, write_csv(table).encode())
    text = render_page(sweep, result.records, table, tasks=result.tasks, title=title, command=command)
    write_atomically(result.page, text.encode())


def _count_failed(records: Mapping[str, TaskRecord]) -> str:
    failed = sum(record.state == "failed" for record in records.values())
    return f"{failed} failed" if failed else ""


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Lock the folder against a second call; the system releases the lock when the process ends, however it ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("w")
    except OSError as error:
        raise ExhumeError(f"{folder} cannot be written ({error.strerror}); choose another --out.") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ExhumeError(f"Another sweep is writing to {folder}; wait for it, or choose another --out.") from error
        yield
