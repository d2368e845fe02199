"""The table of a sweep: one row per task, one column per setting and per result."""

import csv
import fnmatch
import io
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exhume.sweeps.jobs import TaskRecord
from exhume.sweeps.sweep_file import Sweep

NULL = "holdout_"
"""Prefix of the counts on held-out examples, in front of the name of the count on training examples."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Settings, state and results of every task."""

    settings: tuple[str, ...]
    """Names of the setting columns; those that vary come first."""
    results: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]

    @classmethod
    def of(cls, sweep: Sweep, records: Sequence[TaskRecord]) -> "Table":
        """Return the table of these records."""
        named = dict.fromkeys([*sweep.axes, *(name for record in records for name in record.settings)])
        found = dict.fromkeys(name for record in records for name in record.results)
        results = [name for name in found if any(fnmatch.fnmatchcase(name, pattern) for pattern in sweep.results)]
        return cls(
            settings=tuple(named),
            results=tuple(results),
            rows=tuple(
                {
                    "task": record.key,
                    "state": record.state,
                    "exit_code": record.exit_code,
                    "seed": record.seed,
                    **{name: record.settings.get(name) for name in named},
                    **{name: record.results.get(name) for name in results},
                    "seconds": round(record.seconds, 3),
                    "message": record.message,
                }
                for record in records
            ),
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns, in their order."""
        return ("task", "state", "exit_code", "seed", *self.settings, *self.results, "seconds", "message")


def write_csv(table: Table) -> str:
    """Return the table as CSV with a header; cells without a value are empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, table.columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: cell(value) for name, value in row.items()} for row in table.rows)
    return text.getvalue()


def cell(value: Any) -> str:
    """Return a value as the text of a cell.

    >>> cell(None), cell(True), cell([1, 2]), cell(0.1)
    ('', 'true', '[1, 2]', '0.1')
    """
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Tasks that differ only in their seed."""

    settings: tuple[Any, ...]
    tasks: int
    failed: int
    means: Mapping[str, float]
    """Mean of every numeric result over the finished tasks."""
    spreads: Mapping[str, float]
    """Sample standard deviation of every numeric result with two values or more."""


def group_by_settings(table: Table, axes: Sequence[str], results: Sequence[str]) -> list[Group]:
    """Group the rows that agree on all ``axes``, in the order of the table."""
    gathered: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in table.rows:
        gathered.setdefault(tuple(cell(row[axis]) for axis in axes), []).append(row)
    return [
        Group(
            settings=point,
            tasks=len(rows),
            failed=sum(row["state"] == "failed" for row in rows),
            means={name: statistics.fmean(values) for name in results if (values := _numbers(rows, name))},
            spreads={name: statistics.stdev(values) for name in results if len(values := _numbers(rows, name)) > 1},
        )
        for point, rows in gathered.items()
    ]


def choose_results(table: Table, most: int) -> list[str]:
    """Return up to ``most`` numeric results for the page, each followed by its count on held-out examples.

    Results that differ between tasks are preferred. Durations are left out, and of results that agree in every task
    only the first is shown.
    """
    numeric = [name for name in table.results if not name.endswith("seconds") and _numbers(table.rows, name)]
    nulls = {name.replace(NULL, ""): name for name in numeric if NULL in name}
    alone = [name for name in numeric if NULL not in name or name.replace(NULL, "") not in numeric]
    pairs = [(name, nulls[name]) if name in nulls else (name,) for name in alone]
    varying = [pair for pair in pairs if any(len(set(_numbers(table.rows, name))) > 1 for name in pair)]
    shown: list[str] = []
    seen = set()
    for pair in varying or pairs:
        values = tuple(row[name] for name in pair for row in table.rows)
        if values not in seen and len(shown) + len(pair) <= most:
            shown += pair
        seen.add(values)
    return shown


def _numbers(rows: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [float(row[name]) for row in rows if row["state"] == "done" and isinstance(row[name], int | float)]
