"""Run the commands of one task in its own folder, and save a record of how it ended in one atomic step."""

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
"""Runs a command line, given as a list of words, and returns its exit code."""
State = Literal["done", "failed"]

RECORD = "task.json"
LOG = "log.txt"
ENDED = (0, 1, 3)
"""Exit codes of commands that finished; 1 and 3 are findings of an audit."""
INTERRUPTED = 130
LONGEST_WORD = 80
"""Length in characters above which a text is prose and not a result for the table."""
NO_RESULTS = (
    "request", "settings", "versions", "schema_version", "training", "architecture", "notes", "seed", "threat_model",
)  # fmt: skip
"""Keys of result files that repeat the settings of the task."""
NO_FOLDERS = ("cells", "checkpoints", "figures")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A task as an engine sees it: command lines and a folder. Jobs can be sent to other machines."""

    key: str
    lines: tuple[tuple[str, ...], ...]
    folder: Path
    """Absolute path of the folder of this task."""
    place: Path
    """Working directory of the sweep, to which paths in the lines are relative; other machines may not have it."""
    settings: Mapping[str, Any]
    seed: int
    run: Command
    version: str = __version__


@dataclass(frozen=True, kw_only=True)
class TaskRecord:
    """How a task ended."""

    key: str
    settings: Mapping[str, Any]
    seed: int
    state: State
    exit_code: int | None
    """Exit code of the last command that ran; None if no command returned one."""
    message: str = ""
    """Why the task failed, in one sentence; empty otherwise."""
    seconds: float = 0.0
    results: Mapping[str, Any] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Save the record in the task's folder, in one atomic step."""
        write_json(folder / RECORD, asdict(self))

    @classmethod
    def load(cls, folder: Path) -> "TaskRecord | None":
        """Return the record of an earlier run, or None if there is no readable one."""
        try:
            return cls(**json.loads((folder / RECORD).read_text()))
        except (OSError, ValueError, TypeError):
            return None


class Interrupted(KeyboardInterrupt):
    """Ctrl-C stopped a command inside a task; its state is saved."""


def run_job(job: Job) -> TaskRecord:
    """Run the lines of a job until one fails; save and return the record.

    Commands continue from the files of an earlier attempt. Their output goes to ``log.txt``.

    Raises:
        Interrupted: after Ctrl-C; no record is saved.
    """
    if job.version != __version__:
        return failed_record(job, f"This machine has exhume {__version__}, the sweep was called with {job.version}.")
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
        return failed_record(job, message, seconds=time.perf_counter() - started)
    if status == INTERRUPTED:
        raise Interrupted
    record = TaskRecord(
        key=job.key,
        settings=dict(job.settings),
        seed=job.seed,
        state="done" if status in ENDED else "failed",
        exit_code=status,
        message="" if status in ENDED else message or _last_message(job.folder / LOG),
        seconds=time.perf_counter() - started,
        results=read_results(job.folder),
    )
    record.save(job.folder)
    return record


def failed_record(job: Job, message: str, *, seconds: float = 0.0) -> TaskRecord:
    """Return the record of a task that could not be run to its end."""
    return TaskRecord(
        key=job.key,
        settings=dict(job.settings),
        seed=job.seed,
        state="failed",
        exit_code=None,
        message=message,
        seconds=seconds,
    )


def read_results(folder: Path) -> dict[str, Any]:
    """Return every number, boolean and word in the JSON files of a task, by file name and keys.

    ``audit.json`` with ``{"verdict": {"finding": "nothing"}}`` gives ``audit.verdict.finding``; names of
    files in sub-folders begin with the folder.
    """
    results: dict[str, Any] = {}
    for file in sorted(folder.rglob("*.json")):
        parts = file.relative_to(folder).with_suffix("").parts
        if file.name in (RECORD, "request.json") or set(parts) & set(NO_FOLDERS) or file.name.startswith("."):
            continue
        try:
            values = json.loads(file.read_text())
        except (OSError, ValueError, RecursionError):
            continue
        results |= {".".join((*parts, *keys)): value for keys, value in _scalars(values)}
    return results


def _scalars(value: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in NO_RESULTS:
                yield from _scalars(item, (*keys, key))
    elif isinstance(value, int | float) or (isinstance(value, str) and len(value) <= LONGEST_WORD):
        yield keys, value


def _run(command: Command, line: Sequence[str]) -> tuple[int, str]:
    """Run one line; an exception fails this task only."""
    try:
        return command(line), ""
    except KeyboardInterrupt:
        return INTERRUPTED, ""
    except SystemExit as error:  # commands return their code, so the user's own code called sys.exit
        return 2, f"The code of the user ended the process ({first_sentence(error)})."
    except Exception as error:
        traceback.print_exc()
        kind = "" if isinstance(error, ExhumeError) else f"{type(error).__name__}: "
        return 2, f"{kind}{first_sentence(error)}."


def _last_message(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.exists() else []
    messages = [line for line in lines if line.startswith("exhume: ")] or lines
    return messages[-1].removeprefix("exhume: ") if messages else "The command failed without a message."
