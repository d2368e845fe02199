"""Sweeps of pretended commands, which cost nothing to run."""

import csv
import json
from pathlib import Path

from exhume.sweeps import Job, Sweep

HOSTILE = "<script>alert('1')</script>"
calls: list[tuple[str, ...]] = []


def pretend(line):
    """A command of a few words: writes its number, or fails as result. What real commands do is tested with them."""
    line = tuple(line)
    calls.append(line)
    word, folder = line[0], Path(line[-1])
    if word == "fail":
        print(f"exhume: There is no {HOSTILE}.")
        return 2
    if word == "crash":
        raise RuntimeError("out of all bounds\nand more")
    if word == "leave":
        raise SystemExit(0)
    if word == "stop":
        raise KeyboardInterrupt
    if word == "audit":
        return 3
    (folder / "result.json").write_text(
        json.dumps({"number": float(word), "seed": 7, "deep": {"good": True, "list": [1]}, "word": HOSTILE})
    )
    return 0


def job(tmp_path, number, *words, seed=0, **settings):
    key = f"{number:016x}"
    folder = tmp_path / "tasks" / key
    return Job(
        key=key,
        lines=tuple((word, str(folder)) for word in words),
        folder=folder,
        place=Path.cwd(),
        settings={"train.size": number, **settings},
        seed=seed,
        run=pretend,
    )


def sweep(**changed):
    return Sweep(**{"commands": ("train",), "grid": {"train": {"size": [1, 2, 3]}}, **changed})


def rows(result):
    with result.table.open() as file:
        return list(csv.DictReader(file))
