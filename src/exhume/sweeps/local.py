"""One task after the other, in this process: no more to install, and all cores to each task."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from exhume.sweeps.work import Job, Record, carry_out


@dataclass(frozen=True, kw_only=True)
class LocalEngine:
    """Runs tasks here, in their order."""

    def check(self) -> None:
        """Find nothing to refuse: what runs here is here."""

    def run(self, jobs: Sequence[Job]) -> Iterator[Record]:
        """Yield the record of each job as it ends."""
        yield from map(carry_out, jobs)
