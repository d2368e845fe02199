"""How long work reports where it stands, without knowing who listens."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class Progress(Protocol):
    """A listener for long work; the command line draws bars from it, a notebook may print it."""

    def __call__(self, stage: str, done: int, total: int, note: str = "") -> None:
        """Hear that ``done`` of ``total`` units of ``stage`` are finished; ``note`` is a short figure to show."""
        ...


def silent(stage: str, done: int, total: int, note: str = "") -> None:
    """Hear progress and say nothing.

    >>> silent("train", 1, 10)
    """
