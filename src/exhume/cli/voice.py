"""What a command says and where: results on standard output, everything else on standard error."""

import json
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from exhume.cli.bars import Bars
from exhume.core.errors import ExhumeError

WIDEST = 10_000
"""Characters a line where no terminal limits it: tables in files and pipes keep every word."""


class Voice:
    """How one command speaks: to a person, to a machine (``as_json``), or not at all (``quiet``)."""

    def __init__(self, *, as_json: bool, quiet: bool) -> None:
        self.as_json, self.quiet = as_json, quiet
        width = None if sys.stdout.isatty() else WIDEST
        self.out = Console(file=sys.stdout, quiet=as_json or quiet, highlight=False, soft_wrap=True, width=width)
        self.aside = Console(file=sys.stderr, quiet=quiet, highlight=False, soft_wrap=True)

    def say(self, sentence: str, style: str | None = None) -> None:
        """Tell a person a part of the result."""
        self.out.print(sentence, style=style, markup=False)

    def note(self, sentence: str) -> None:
        """Tell a person something that is no result."""
        self.aside.print(sentence, style="dim", markup=False)

    def table(self, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
        """Show rows to a person."""
        table = Table(*head, box=None, pad_edge=False, header_style="dim", padding=(0, 2))
        for row in rows:
            table.add_row(*row)
        self.out.print(table)

    def give(self, result: Mapping[str, Any]) -> None:
        """Hand the result to a machine, if that is who listens."""
        if self.as_json and not self.quiet:
            print(json.dumps(result, indent=2, allow_nan=False))

    def progress(self, checkpoint: Path | None = None) -> Bars:
        """Return a listener for long work, which may keep its state in a checkpoint."""
        return Bars(self.aside, checkpoint=checkpoint)


@contextmanager
def speaking(*, as_json: bool, quiet: bool, debug: bool) -> Iterator[Voice]:
    """Give a command its voice, and turn what goes wrong into one sentence and an exit code."""
    try:
        yield Voice(as_json=as_json, quiet=quiet)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None  # 128 and the number of the signal, as shells have it
    except (ExhumeError, OSError, MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not _is_out_of_memory(error):
            raise
        if debug:
            traceback.print_exc()
        print(f"exhume: {_sentence(error)}", file=sys.stderr)
        raise typer.Exit(2) from error


def _is_out_of_memory(error: BaseException) -> bool:
    """Tell whether memory ran out; on a CPU PyTorch says so in words alone."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def _sentence(error: BaseException) -> str:
    if isinstance(error, ExhumeError):
        return str(error)
    if _is_out_of_memory(error):
        return "There is not enough memory for this; take fewer examples or candidates, or a narrower network."
    place = getattr(error, "filename", None)
    reason = getattr(error, "strerror", None) or str(error)
    return f"{place}: {reason}." if place else f"{reason}."
