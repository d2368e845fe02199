"""Progress callbacks: how long work reports its progress, without knowing who shows it."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

Tick = Callable[[], None]
"""Called between steps of a computation that has nothing to save; may raise to stop it."""


def no_tick() -> None:
    """Do nothing (the default tick)."""


@runtime_checkable
class Progress(Protocol):
    """A progress callback; the command line draws bars, a notebook may print lines."""

    def __call__(self, stage: str, done: int, total: int, note: str = "") -> None:
        """Take note that ``done`` of ``total`` units of ``stage`` are finished; ``note`` is a short text to show."""
        ...


def part_of(progress: Progress, before: int, whole: int) -> Progress:
    """Return a callback for a part of longer work of ``whole`` units, ``before`` of which are done.

    >>> part_of(lambda *report: print(report), 10, 30)("train", 2, 5)
    ('train', 12, 30, '')
    """

    def report(stage: str, done: int, total: int, note: str = "") -> None:
        progress(stage, before + done, whole, note)

    return report


def no_progress(stage: str, done: int, total: int, note: str = "") -> None:
    """Do nothing (the default progress callback).

    >>> no_progress("train", 1, 10)
    """
