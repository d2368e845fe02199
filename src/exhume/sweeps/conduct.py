"""A whole sweep: what is done already is found, the rest is run, and everything ends up in one table and one page."""

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
from exhume.sweeps.page import page
from exhume.sweeps.plan import Sweep
from exhume.sweeps.table import Table, as_csv
from exhume.sweeps.work import Job, Record

TABLE, PAGE = "table.csv", "summary.html"
FRESH_SECONDS = 10.0
"""How often the table and the page are brought up to date while tasks end; less often where that takes long."""
WRITING = 0.05
"""The share of time that may go into it: a hundred thousand rows take half a minute."""


@runtime_checkable
class Engine(Protocol):
    """What runs jobs: here or elsewhere, one or many at a time."""

    def check(self) -> None:
        """Raise :class:`~exhume.core.errors.ExhumeError` when the engine cannot run at all."""
        ...

    def run(self, jobs: Sequence[Job]) -> Iterator[Record]:
        """Yield the record of each job as it ends, in any order."""
        ...


@dataclass(frozen=True, kw_only=True)
class Account:
    """What became of a sweep."""

    records: tuple[Record, ...]
    """In the order of the tasks, as far as they ended."""
    tasks: int
    found: int
    """How many were done by an earlier call."""
    table: Path
    page: Path

    @property
    def failed(self) -> tuple[Record, ...]:
        """The tasks that failed."""
        return tuple(record for record in self.records if record.state == "failed")


def conduct(
    sweep: Sweep,
    jobs: Sequence[Job],
    engine: Engine,
    folder: Path,
    *,
    title: str = "sweep",
    command: str = "",
    progress: Progress = no_progress,
) -> Account:
    """Run the jobs that are not done yet, and write the table and the page of all.

    Interrupted or killed, the same call continues: a job with the record of a task that was done is not run again, one
    that failed is. The table is there at any time, with what has ended by then.

    Args:
        sweep: what the jobs belong to.
        jobs: one a task, in the order of the table.
        engine: runs them.
        folder: where the table and the page go.
        title: of the page.
        command: how to repeat the sweep, for the page.
        progress: hears how many tasks ended.
    """
    engine.check()
    kept = {job.key: Record.load(job.folder) for job in jobs}
    records = {key: record for key, record in kept.items() if record is not None and record.state == "done"}
    folders = {job.key: job.folder for job in jobs}
    found, due = len(records), time.monotonic() + FRESH_SECONDS

    def account() -> Account:
        ended = tuple(records[job.key] for job in jobs if job.key in records)
        return Account(records=ended, tasks=len(jobs), found=found, table=folder / TABLE, page=folder / PAGE)

    with _alone_in(folder):
        try:
            progress("tasks", found, len(jobs), _note(records))
            # Untouched ones first: a task that takes the whole process down, for want of memory say, costs no other.
            left = sorted((job for job in jobs if job.key not in records), key=lambda job: job.folder.exists())
            for record in engine.run(left) if left else ():
                records[record.key] = record
                _keep(record, folders[record.key])
                progress("tasks", len(records), len(jobs), _note(records))
                if (begun := time.monotonic()) > due:
                    _write(sweep, account(), title, command)
                    ended = time.monotonic()
                    due = ended + max(FRESH_SECONDS, (ended - begun) / WRITING)
        finally:
            if records:
                _write(sweep, account(), title, command)
    return account()


def _keep(record: Record, folder: Path) -> None:
    """Keep a record here, too, where a machine wrote it that shares no disk, or died before it could."""
    if Record.load(folder) != record:
        record.save(folder)


def _write(sweep: Sweep, account: Account, title: str, command: str) -> None:
    table = Table.of(sweep, account.records)
    write_atomically(account.table, as_csv(table).encode())
    text = page(sweep, account.records, table, tasks=account.tasks, title=title, command=command)
    write_atomically(account.page, text.encode())


def _note(records: Mapping[str, Record]) -> str:
    failed = sum(record.state == "failed" for record in records.values())
    return f"{failed} failed" if failed else ""


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Keep a second call away from the folder; the lock goes with the process, however it ends."""
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
