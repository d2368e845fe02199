"""Progress as bars, and Ctrl-C as a wish to stop where nothing is lost."""

import signal
import sys
import threading
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn


class Bars:
    """A :class:`~exhume.core.progress.Progress` listener that draws one bar a stage.

    While work with a checkpoint runs, the first Ctrl-C stops it at its next report, where its state can be saved; a
    second one stops it at once.
    """

    def __init__(self, console: Console, *, checkpoint: Path | None = None) -> None:
        self.checkpoint, self.interrupted = checkpoint, False
        self.tasks: dict[str, TaskID] = {}
        self.drawing = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", style="dim"),
            console=console,
        )
        self.before: Any = None

    def __call__(self, stage: str, done: int, total: int, note: str = "") -> None:
        """Draw where a stage stands; after Ctrl-C, stop the work here."""
        self.drawing.start()  # at the first report: work that fails before it draws nothing
        if stage not in self.tasks:
            self.tasks[stage] = self.drawing.add_task(stage, total=total or None, note=note)
        self.drawing.update(self.tasks[stage], completed=done, total=total or None, note=note)
        if self.interrupted:
            raise KeyboardInterrupt

    def __enter__(self) -> "Bars":
        # Signals reach the main thread alone; elsewhere Ctrl-C is somebody else's affair.
        if self.checkpoint is not None and threading.current_thread() is threading.main_thread():
            self.before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drawing.stop()
        if self.before is not None:
            signal.signal(signal.SIGINT, self.before)
        if isinstance(error, KeyboardInterrupt) and self.checkpoint is not None and self.checkpoint.exists():
            print(f"exhume: Interrupted; {self.checkpoint} is kept, and the same command continues.", file=sys.stderr)
        elif kind is None and self.interrupted:
            raise KeyboardInterrupt

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True
