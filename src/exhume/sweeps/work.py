"""One task at work: its commands in its own folder, and a record of how it ended that is whole or not there."""

import json
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from exhume.core.errors import ExhumeError
from exhume.core.storage import write_json
from exhume.core.text import first_sentence
from exhume.version import __version__

Command = Callable[[Sequence[str]], int]
"""Runs a line of words and returns its exit code."""
State = Literal["done", "failed"]

RECORD = "task.json"
LOG = "log.txt"
ENDED = (0, 1, 3)
"""Exit codes of commands that did their work; 1 and 3 are answers of an audit."""
INTERRUPTED = 130
LONGEST_WORD = 80
"""Texts beyond this are prose and no result for a table."""
NO_RESULTS = (
    "request", "settings", "versions", "schema_version", "training", "architecture", "notes", "seed", "threat_model",
)  # fmt: skip
"""Parts of a command's account that say what was asked, which the settings of the task say already."""
NO_FOLDERS = ("cells", "checkpoints", "figures")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A task as an engine sees it: lines to run and a folder; it can travel to another machine."""

    key: str
    lines: tuple[tuple[str, ...], ...]
    folder: Path
    """Of this task alone, absolute."""
    place: Path
    """Where the sweep was called, which relative paths in the lines mean; machines that share no disk may lack it."""
    settings: Mapping[str, Any]
    seed: int
    run: Command
    version: str = __version__


@dataclass(frozen=True, kw_only=True)
class Record:
    """How a task ended."""

    key: str
    settings: Mapping[str, Any]
    seed: int
    state: State
    exit_code: int | None
    """Of the last command that ran; None where none could say."""
    message: str = ""
    """What was wrong with a task that failed, in a sentence."""
    seconds: float = 0.0
    results: Mapping[str, Any] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Keep the record in the task's folder, in one step."""
        write_json(folder / RECORD, asdict(self))

    @classmethod
    def load(cls, folder: Path) -> "Record | None":
        """Return the record of an earlier run; None where there is none, or none that can be read."""
        try:
            return cls(**json.loads((folder / RECORD).read_text()))
        except (OSError, ValueError, TypeError):
            return None


class Interrupted(KeyboardInterrupt):
    """A person stopped the command inside a task; it saved its state."""


def carry_out(job: Job) -> Record:
    """Run the lines of a job until one fails, and leave and return the record.

    What an earlier attempt left in the folder stays: every command continues from there. Whatever the commands say goes
    to ``log.txt``.

    Raises:
        Interrupted: when a person stopped a command; no record is left.
    """
    if job.version != __version__:
        return failure(job, f"This machine has exhume {__version__}, the sweep was called with {job.version}.")
    started = time.perf_counter()
    status: int | None = None
    message = ""
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
        with (
            (job.folder / LOG).open("w", buffering=1, encoding="utf-8") as log,
            redirect_stdout(log),
            redirect_stderr(log),
            chdir(job.place if job.place.is_dir() else job.folder),
        ):
            for line in job.lines:
                status, message = _run(job.run, line)
                if status not in ENDED:
                    break
    except OSError as error:
        message = f"The folder of the task cannot be used ({first_sentence(error)})."
        return failure(job, message, seconds=time.perf_counter() - started)
    if status == INTERRUPTED:
        raise Interrupted
    record = Record(
        key=job.key,
        settings=dict(job.settings),
        seed=job.seed,
        state="done" if status in ENDED else "failed",
        exit_code=status,
        message="" if status in ENDED else message or _last_words(job.folder / LOG),
        seconds=time.perf_counter() - started,
        results=results_in(job.folder),
    )
    record.save(job.folder)
    return record


def failure(job: Job, message: str, *, seconds: float = 0.0) -> Record:
    """Return the record of a task that could not be run to an end of its own."""
    return Record(
        key=job.key,
        settings=dict(job.settings),
        seed=job.seed,
        state="failed",
        exit_code=None,
        message=message,
        seconds=seconds,
    )


def results_in(folder: Path) -> dict[str, Any]:
    """Return every number, truth and word that commands left in JSON files, under the file's name and its keys.

    ``audit.json`` with ``{"verdict": {"finding": "nothing"}}`` gives ``audit.verdict.finding``; files in sub-folders go
    by their folder, too.
    """
    results: dict[str, Any] = {}
    for file in sorted(folder.rglob("*.json")):
        parts = file.relative_to(folder).with_suffix("").parts
        if file.name in (RECORD, "request.json") or set(parts) & set(NO_FOLDERS) or file.name.startswith("."):
            continue
        try:
            said = json.loads(file.read_text())
        except (OSError, ValueError, RecursionError):
            continue
        results |= {".".join((*parts, *keys)): value for keys, value in _scalars(said)}
    return results


def _scalars(value: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in NO_RESULTS:
                yield from _scalars(item, (*keys, key))
    elif isinstance(value, int | float) or (isinstance(value, str) and len(value) <= LONGEST_WORD):
        yield keys, value


def _run(command: Command, line: Sequence[str]) -> tuple[int, str]:
    """Run one line; whatever it raises is a failure of this task and of no other."""
    try:
        return command(line), ""
    except KeyboardInterrupt:
        return INTERRUPTED, ""
    except SystemExit as left:  # commands return their code; what leaves is code of others, whatever it says
        return 2, f"The process was told to end ({first_sentence(left)})."
    except Exception as error:
        traceback.print_exc()
        kind = "" if isinstance(error, ExhumeError) else f"{type(error).__name__}: "
        return 2, f"{kind}{first_sentence(error)}."


def _last_words(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.exists() else []
    spoken = [line for line in lines if line.startswith("exhume: ")] or lines
    return spoken[-1].removeprefix("exhume: ") if spoken else "It failed without a word."
