"""Output of a command: results on standard output, notes, progress and errors on standard error."""

import json
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from exhume.cli.progress_bars import ProgressBars
from exhume.core.errors import ExhumeError

PIPE_WIDTH = 10_000
"""Line width in characters where standard output is no terminal: wide enough that tables never truncate a cell."""

BAD_INPUT, INTERRUPTED = 2, 130
"""Exit codes: the user can correct the problem; Ctrl-C (128 plus the signal's number, as in shells)."""


class CommandConsole:
    """The output of one command: text for readers, JSON for programs (``as_json``), or nothing (``quiet``)."""

    def __init__(self, *, as_json: bool, quiet: bool) -> None:
        self.as_json, self.quiet = as_json, quiet
        width = None if sys.stdout.isatty() else PIPE_WIDTH
        self.results = Console(file=sys.stdout, quiet=as_json or quiet, highlight=False, soft_wrap=True, width=width)
        self.notes = Console(file=sys.stderr, quiet=quiet, highlight=False, soft_wrap=True)

    def print(self, sentence: str, style: str | None = None) -> None:
        """Print a part of the result for readers."""
        self.results.print(sentence, style=style, markup=False)

    def note(self, sentence: str) -> None:
        """Print a remark that is not part of the result."""
        self.notes.print(sentence, style="dim", markup=False)

    def print_table(self, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
        """Print a part of the result as a table."""
        table = Table(*head, box=None, pad_edge=False, header_style="dim", padding=(0, 2))
        for row in rows:
            table.add_row(*row)
        self.results.print(table)

    def print_json(self, result: Mapping[str, Any]) -> None:
        """Print the result as JSON if ``--json`` was given."""
        if self.as_json and not self.quiet:
            print(json.dumps(result, indent=2, allow_nan=False))

    def progress(self, checkpoint: Path | None = None) -> ProgressBars:
        """Return a progress callback for long work, which may save its state to ``checkpoint``."""
        return ProgressBars(self.notes, checkpoint=checkpoint)


@contextmanager
def open_console(*, as_json: bool, quiet: bool, debug: bool) -> Iterator[CommandConsole]:
    """Open a command's console, and turn errors inside the block into one sentence and an exit code."""
    try:
        yield CommandConsole(as_json=as_json, quiet=quiet)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except (ExhumeError, OSError, MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not _is_out_of_memory(error):
            raise
        if debug:
            traceback.print_exc()
        print(f"exhume: {_describe_error(error)}", file=sys.stderr)
        raise typer.Exit(BAD_INPUT) from error


def _is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out; on a CPU PyTorch raises a plain RuntimeError, known only by its message."""
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return True
    torch = sys.modules.get("torch")  # an error of torch means that torch is loaded
    return torch is not None and isinstance(error, torch.OutOfMemoryError)


def _describe_error(error: BaseException) -> str:
    if isinstance(error, ExhumeError):
        return str(error)
    if _is_out_of_memory(error):
        return "There is not enough memory; use fewer examples or candidates, or a narrower network."
    place = getattr(error, "filename", None)
    reason = getattr(error, "strerror", None) or str(error)
    return f"{place}: {reason}." if place else f"{reason}."
