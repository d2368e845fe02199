"""How long work reports to its caller: remarks, and a progress callback for each part."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from exhume.core.progress import Progress, no_progress


@runtime_checkable
class Observer(Protocol):
    """The caller of an audit, to whom it reports; the command line's console is one."""

    def note(self, sentence: str) -> None:
        """Receive a remark that is not part of the result."""

    def progress(self, checkpoint: Path | None = None) -> AbstractContextManager[Progress]:
        """Return the progress callback of one part, which may save its state to ``checkpoint``."""
        ...


@dataclass(frozen=True)
class SilentObserver:
    """Drop remarks, and pass progress on to one callback."""

    callback: Progress = no_progress

    def note(self, sentence: str) -> None:
        """Do nothing."""

    def progress(self, checkpoint: Path | None = None) -> AbstractContextManager[Progress]:
        """Return the callback."""
        return nullcontext(self.callback)
