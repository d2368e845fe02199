"""Records as one table: a row a task, a column a setting and a result."""

import csv
import fnmatch
import io
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exhume.sweeps.plan import Sweep
from exhume.sweeps.work import Record

NULL = "holdout_"
"""What commands write before the name of a count to name the same count of held-out examples."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """What every task was, how it ended and what came out."""

    settings: tuple[str, ...]
    """Names of columns: those that vary first."""
    results: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]

    @classmethod
    def of(cls, sweep: Sweep, records: Sequence[Record]) -> "Table":
        """Lay out the records of a sweep."""
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


def as_csv(table: Table) -> str:
    """Return the table as CSV with a head; cells that have no value are empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, table.columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: cell(value) for name, value in row.items()} for row in table.rows)
    return text.getvalue()


def cell(value: Any) -> str:
    """Write a value as one cell.

    >>> cell(None), cell(True), cell([1, 2]), cell(0.1)
    ('', 'true', '[1, 2]', '0.1')
    """
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, kw_only=True)
class Group:
    """The tasks that differ in nothing but their seed."""

    settings: tuple[Any, ...]
    tasks: int
    failed: int
    means: Mapping[str, float]
    """Of every numeric result, over the tasks that were done."""
    spreads: Mapping[str, float]
    """Sample standard deviations, where there are two values or more."""


def groups(table: Table, axes: Sequence[str], results: Sequence[str]) -> list[Group]:
    """Gather the rows that agree on all ``axes``, in the order of the table."""
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


def telling(table: Table, most: int) -> list[str]:
    """Return as many numeric results as a page has room for, each followed by its null.

    They are those that differ between tasks, or whose null does, if any do. Durations are left out, and of results that
    agree in every task the first stands for all.
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
