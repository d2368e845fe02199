"""The context of long work: randomness, a progress callback, a checkpoint file and a deadline."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from exhume.core.checkpoint import Checkpoint, fingerprint
from exhume.core.errors import ExhumeError
from exhume.core.progress import Progress, no_progress


class OutOfTime(ExhumeError):  # noqa: N818 - an event that callers handle, not a malfunction
    """The deadline passed; what was saved in the checkpoint is kept, and the same call continues from there."""

    def __init__(self, message: str = "", *, wraps_up: bool = False) -> None:
        super().__init__(message)
        self.wraps_up = wraps_up
        """Whether the work should save its state and return what it has, where it can, instead of ending here."""


Result = TypeVar("Result")
STOPS = (KeyboardInterrupt, OutOfTime)
"""What a progress report may raise: a user's wish to stop, or the deadline. Loops save their state, then re-raise."""
GRACE_SHARE, GRACE_SECONDS = 0.25, 1.0
"""How long after its deadline the result of a search may be made: a share of the time limit, plus some seconds."""


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """Randomness, progress, checkpoint and deadline of one piece of long work.

    Work calls :meth:`report` between steps, where its state is whole, and saves its state when ``report`` raises.
    """

    generator: torch.Generator
    """The only source of randomness."""
    progress: Progress = no_progress
    checkpoint: Path | None = None
    """The file that the state of the work is saved to and continued from; None: nothing is saved."""
    deadline: float = math.inf
    """When to stop, on the clock of :func:`time.monotonic`."""
    limit: float = math.inf
    """The seconds between the start of the work and its deadline."""
    is_ending: bool = False
    """Whether the deadline has been extended to end the work (:meth:`with_grace`), and is kept to the end."""
    wraps_up: bool = False
    """Whether work that the deadline stops should return what it has so far, where it can."""
    cut: dict[str, float] = field(default_factory=dict, compare=False)
    """The stages that the deadline cut short, and the share of each that was done; empty for complete work."""

    @classmethod
    def start(
        cls,
        *,
        seed: int = 0,
        progress: Progress = no_progress,
        checkpoint: Path | str | None = None,
        seconds: float | None = None,
        wraps_up: bool = False,
    ) -> "RunContext":
        """Return the context of work that begins now and may take ``seconds``."""
        return cls(
            generator=torch.Generator().manual_seed(seed),
            progress=progress,
            checkpoint=None if checkpoint is None else Path(checkpoint),
            deadline=math.inf if seconds is None else time.monotonic() + seconds,
            limit=math.inf if seconds is None else max(seconds, 0.0),
            wraps_up=wraps_up,
        )

    def report(self, stage: str, done: int, total: int, note: str = "") -> None:
        """Report progress, and stop the work here when the deadline has passed.

        Raises:
            OutOfTime: when the deadline has passed.
        """
        self.progress(stage, done, total, note)
        # The little that is left to do is worth its time.
        is_done = self.wraps_up and not self.is_ending and done >= total > 0
        if time.monotonic() > self.deadline and not is_done:
            self.cut.setdefault(stage, done / total if total else 0.0)
            raise OutOfTime("The time for this work is spent.", wraps_up=self.wraps_up)

    def with_grace(self) -> "RunContext":
        """Return the context of the work that makes a result of what a search found, with a little more time.

        A search may use all of its time, and what it found is worth nothing before it is read out and judged.
        """
        return replace(self, deadline=self.deadline + GRACE_SHARE * self.limit + GRACE_SECONDS, is_ending=True)

    def share(self, part: float) -> "RunContext":
        """Return the context of a first part of the work, which may take this share of the time that is left."""
        now = time.monotonic()
        return replace(self, deadline=now + part * (self.deadline - now))

    def within_time(self, work: Callable[[], Result], otherwise: Result) -> Result:
        """Return the result of work, or ``otherwise`` where the deadline stops it and the caller wants what there is.

        Raises:
            OutOfTime: when the deadline has passed and the caller does not.
        """
        try:
            return work()
        except OutOfTime as stop:
            if not stop.wraps_up:
                raise
            return otherwise

    def part(self, name: str, *, generator: torch.Generator | None = None) -> "RunContext":
        """Return the context of a named part of the work, with a checkpoint file of its own beside this one."""
        file = self.checkpoint
        return replace(
            self,
            generator=generator or self.generator,
            checkpoint=None if file is None else file.with_name(f"{file.stem}-{name}{file.suffix}"),
        )

    def saved(self, kind: str, about: Mapping[str, Any], *tensors: Tensor) -> Checkpoint | None:
        """Return the checkpoint of work that ``about`` and ``tensors`` identify; None where nothing is saved."""
        return None if self.checkpoint is None else Checkpoint(self.checkpoint, fingerprint(about, *tensors), kind)

    def discard_checkpoint(self) -> None:
        """Remove the checkpoint file, if there is one; work that was cut short keeps it."""
        if self.checkpoint is not None and not self.cut:
            self.checkpoint.unlink(missing_ok=True)
