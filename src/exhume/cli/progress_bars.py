"""Progress bars, and Ctrl-C handling that lets work save its state before it stops."""

import signal
import sys
import threading
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class ProgressBars:
    """A :class:`~exhume.core.progress.Progress` callback that draws one bar per stage.

    While work with a checkpoint runs, the first Ctrl-C stops it at its next progress report, where its state can be
    saved; a second one stops it at once.
    """

    def __init__(self, console: Console, *, checkpoint: Path | None = None) -> None:
        self.checkpoint, self.interrupted = checkpoint, False
        self.tasks: dict[str, TaskID] = {}
        self.display = Progress(
            SpinnerColumn(),  # moves between two reports
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", style="dim"),
            console=console,
        )
        self.previous_handler: Any = None

    def __call__(self, stage: str, done: int, total: int, note: str = "") -> None:
        """Draw the progress of a stage; after Ctrl-C, stop the work here."""
        self.display.start()  # at the first report, so that work that fails earlier draws nothing
        if stage not in self.tasks:
            self.tasks[stage] = self.display.add_task(stage, total=total or None, note=note)
        self.display.update(self.tasks[stage], completed=done, total=total or None, note=note)
        if self.interrupted:
            raise KeyboardInterrupt

    def __enter__(self) -> "ProgressBars":
        # Python runs signal handlers in the main thread only, and refuses to install them elsewhere.
        if self.checkpoint is not None and threading.current_thread() is threading.main_thread():
            self.previous_handler = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.display.stop()
        if self.previous_handler is not None:
            signal.signal(signal.SIGINT, self.previous_handler)
        if isinstance(error, KeyboardInterrupt) and self.checkpoint is not None and self.checkpoint.exists():
            print(f"exhume: Interrupted; {self.checkpoint} is kept, and the same command continues.", file=sys.stderr)
        elif kind is None and self.interrupted:
            raise KeyboardInterrupt

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True
