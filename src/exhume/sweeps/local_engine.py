"""Run tasks one after the other in this process; each task may use all cores."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from exhume.sweeps.jobs import Job, TaskRecord, run_job


@dataclass(frozen=True, kw_only=True)
class LocalEngine:
    """Runs tasks in this process, in their order."""

    def check(self) -> None:
        """Do nothing; this engine is always available."""

    def run(self, jobs: Sequence[Job]) -> Iterator[TaskRecord]:
        """Yield the record of each job as it ends."""
        yield from map(run_job, jobs)
