"""Measure how long the command line takes to start, as a ratio to an empty Python process.

    PYTHONPATH=src python benchmarks/start_up.py [--out DIR] [--repetitions 7]

Each command runs in a process of its own. Commands take turns, so that a busy machine slows all of them alike, and the
median counts. Goal: less than 0.5 s each.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

GOAL_SECONDS = 0.5
"""Longest acceptable start of ``--version`` and ``--help``: a wait that users hardly notice."""
NOTHING = "python -c pass"
_CLI = "import sys; from exhume.cli import main; sys.exit(main(sys.argv[1:]))"
COMMANDS: dict[str, list[str]] = {
    NOTHING: ["-c", "pass"],
    "exhume --version": ["-c", _CLI, "--version"],
    "exhume --help": ["-c", _CLI, "--help"],
    "exhume reproduce --help": ["-c", _CLI, "reproduce", "--help"],
    "exhume reproduce": ["-c", _CLI, "reproduce"],
    "import exhume": ["-c", "import exhume"],
    "import torch": ["-c", "import torch"],
}


def seconds_of(arguments: list[str]) -> float:
    """Return the wall time of one Python process."""
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def measure(repetitions: int) -> list[dict[str, Any]]:
    """Return the median seconds of every command, and their ratio to an empty process."""
    for arguments in COMMANDS.values():  # writes byte code and fills the file cache
        seconds_of(arguments)
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(repetitions):
        for name, arguments in COMMANDS.items():
            seconds[name].append(seconds_of(arguments))
    median = {name: statistics.median(values) for name, values in seconds.items()}
    return [
        {"command": name, "seconds": value, "least": min(seconds[name]), "ratio": value / median[NOTHING]}
        for name, value in median.items()
    ]


def main(arguments: list[str] | None = None) -> None:
    """Measure, print a table and write ``start_up.json``."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"))
    parser.add_argument("--repetitions", type=int, default=7)
    options = parser.parse_args(arguments)
    rows = measure(options.repetitions)
    for row in rows:
        print(f"{row['command']:26} {row['seconds']:7.3f} s {row['ratio']:7.1f} × {NOTHING}", flush=True)
    result = {"python": platform.python_version(), "machine": platform.machine(), "goal_seconds": GOAL_SECONDS}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "start_up.json").write_text(json.dumps(result | {"rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
