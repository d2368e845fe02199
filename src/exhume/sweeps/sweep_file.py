"""Read a sweep from a TOML file and expand it into tasks; the meaning of commands and options is checked elsewhere."""

import difflib
import itertools
import json
import math
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exhume.core.checkpoint import fingerprint
from exhume.core.errors import ExhumeError
from exhume.version import __version__

Settings = Mapping[str, Any]
"""Settings of one command: values by the long name of an option; a table stands for ``NAME=VALUE`` pairs."""

MOST_TASKS = 100_000
"""Largest number of tasks of a sweep; a larger grid is taken for a mistake."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One command with its settings."""

    command: str
    settings: Settings = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Task:
    """Commands that run one after the other in a folder of their own, all with one seed."""

    steps: tuple[Step, ...]
    seed: int

    @property
    def settings(self) -> dict[str, Any]:
        """All settings of all commands by one name each, such as ``train.size`` or ``audit.set.steps``."""
        return {
            name: value
            for step in self.steps
            for name, value in flatten_settings({step.command: dict(step.settings)}).items()
        }

    @property
    def key(self) -> str:
        """Digest of everything that decides the result: commands, settings, seed, and the version of exhume."""
        steps = [[step.command, step.settings] for step in self.steps]
        return fingerprint({"steps": steps, "seed": self.seed, "version": __version__})[:16]


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resources that Ray reserves for one task."""

    cpus: float = 1.0
    gpus: float = 0.0
    """GPUs per task; with less than 1, tasks share a GPU."""
    memory_gb: float = 0.0
    """Memory per task in GB; 0: not reserved."""
    retries: int = 3
    """Number of retries of a task whose machine or process died; a failing command is not retried."""

    def __post_init__(self) -> None:
        for name in ("cpus", "gpus", "memory_gb", "retries"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ExhumeError(f"A task takes at least 0 of {name}, not {getattr(self, name)}.")


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Commands, fixed options, varied options, and seeds."""

    commands: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)
    options: Mapping[str, Settings] = field(default_factory=dict)
    """Fixed options by command."""
    grid: Mapping[str, Mapping[str, Sequence[Any]]] = field(default_factory=dict)
    """Values by command and dotted name; every combination is a task."""
    cases: tuple[Mapping[str, Settings], ...] = ({},)
    """Settings that vary together; each case is combined with the whole grid."""
    results: tuple[str, ...] = ("*",)
    """Shell patterns of the names of results that go into the table."""
    resources: Resources = field(default_factory=Resources)

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of all settings that vary, without the seed."""
        named = [flatten_settings(dict(case)) for case in self.cases]
        by_case = dict.fromkeys(name for case in named for name in case)
        return (*by_case, *(f"{command}.{name}" for command, values in self.grid.items() for name in values))

    def __len__(self) -> int:
        lengths = [len(values) for by_name in self.grid.values() for values in by_name.values()]
        return len(self.cases) * math.prod(lengths) * len(self.seeds)

    def tasks(self) -> Iterator[Task]:
        """Yield every task, in the order in which the file lists values; seeds turn fastest."""
        places = [(command, name) for command, values in self.grid.items() for name in values]
        values = [self.grid[command][name] for command, name in places]
        for case, *point in itertools.product(self.cases, *values):
            settings = {
                command: _joined(self.options.get(command, {}), case.get(command, {})) for command in self.commands
            }
            for (command, name), value in zip(places, point, strict=True):
                settings[command] = _joined(settings[command], _nested(name, value))
            steps = tuple(Step(command=command, settings=settings[command]) for command in self.commands)
            for seed in self.seeds:
                yield Task(steps=steps, seed=seed)


def read_sweep(path: Path | str) -> Sweep:
    """Read a sweep from a TOML file.

    Raises:
        ExhumeError: when there is no such file, it is no TOML, or it has a key that sweeps do not have; one sentence
            names the place.
    """
    path = Path(path)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ExhumeError(f"There is no sweep at {path}.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ExhumeError(f"{path} cannot be read as text ({error}).") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ExhumeError(f"{path} is not TOML: {error}.") from error
    return _Reader(str(path)).read_sweep(table)


def flatten_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables as one table with dotted names.

    >>> flatten_settings({"set": {"steps": 5}, "size": 3})
    {'set.steps': 5, 'size': 3}
    """
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flatten_settings(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


class _Reader:
    """Checks the content of a TOML file and turns it into a sweep."""

    def __init__(self, place: str) -> None:
        self.place = place

    def read_sweep(self, table: Mapping[str, Any]) -> Sweep:
        self.check_keys(table, ("commands", "seeds", "options", "grid", "cases", "results", "resources"), "a sweep")
        commands = self.read_words(table.get("commands"), 'commands = ["train", "audit"]')
        cases = table.get("cases", [{}])
        if not isinstance(cases, list) or not cases:
            raise self.error("[[cases]] is one table after another, each with settings by command")
        self.check_unique(cases, "[[cases]] lists the same case twice")
        sweep = Sweep(
            commands=commands,
            seeds=self.read_seeds(table.get("seeds", 1)),
            options=self.read_by_command(table.get("options", {}), commands, "[options]"),
            grid={
                command: {name: self.read_axis(name, values) for name, values in flatten_settings(settings).items()}
                for command, settings in self.read_by_command(table.get("grid", {}), commands, "[grid]").items()
            },
            cases=tuple(self.read_by_command(case, commands, "[[cases]]") for case in cases),
            results=self.read_words(table.get("results", ["*"]), 'results = ["audit.certified", "training.*"]'),
            resources=self.read_resources(table.get("resources", {})),
        )
        self.check_disjoint(sweep)
        if len(sweep) > MOST_TASKS:
            raise self.error(f"the grid has {len(sweep)} tasks, more than {MOST_TASKS}")
        return sweep

    def error(self, reason: str) -> ExhumeError:
        return ExhumeError(f"{self.place}: {reason}.")

    def check_keys(self, table: Mapping[str, Any], known: Collection[str], owner: str) -> None:
        for name in table:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {close[0]}" if close else f"it has {', '.join(known)}"
                raise self.error(f"{owner} has no {name!r}; {hint}")

    def read_words(self, value: Any, such_as: str) -> tuple[str, ...]:
        if not isinstance(value, list) or not value or not all(isinstance(word, str) and word for word in value):
            raise self.error(f"a sweep needs a list of words such as {such_as}")
        if len(set(value)) < len(value):
            raise self.error(f"the same word stands twice in {value}")
        return tuple(value)

    def read_seeds(self, value: Any) -> tuple[int, ...]:
        if type(value) is int and value > MOST_TASKS:  # before they are counted out, which takes memory
            raise self.error(f"{value} seeds make more than {MOST_TASKS} tasks")
        numbers = list(range(value)) if type(value) is int else value
        if not isinstance(numbers, list) or not numbers or not all(type(n) is int and n >= 0 for n in numbers):
            raise self.error(f"seeds are a number of repetitions or a list of whole numbers, not {value!r}")
        if len(set(numbers)) < len(numbers):
            raise self.error("the same seed is listed twice")
        return tuple(numbers)

    def read_by_command(self, table: Any, commands: Collection[str], owner: str) -> dict[str, dict[str, Any]]:
        if not isinstance(table, dict):
            raise self.error(f"{owner} holds a table for each command")
        self.check_keys(table, commands, owner)
        for command, settings in table.items():
            if not isinstance(settings, dict):
                raise self.error(f"{owner} holds a table for each command, and {command} is none")
            self.check_values(settings)
        return {command: dict(settings) for command, settings in table.items()}

    def check_values(self, settings: Mapping[str, Any]) -> None:
        for name, value in flatten_settings(settings).items():
            try:
                json.dumps(value, allow_nan=False)
            except (TypeError, ValueError):
                raise self.error(f"{name} is {value!r}, which no option takes") from None

    def read_axis(self, name: str, values: Any) -> list[Any]:
        if not isinstance(values, list) or not values:
            raise self.error(f"[grid] needs a list of values for {name}, such as [1, 2]")
        if any(isinstance(value, dict) for value in values):
            raise self.error(f"[grid] takes no tables: write {name}.NAME = [1, 2], or [[cases]]")
        self.check_unique(values, f"[grid] lists a value of {name} twice")
        return values

    def check_unique(self, values: list[Any], otherwise: str) -> None:
        # As text: True and 1 are one value to Python and two to a command line. Dates are refused elsewhere, by name.
        if len({json.dumps(value, sort_keys=True, default=str) for value in values}) < len(values):
            raise self.error(otherwise)

    def read_resources(self, table: Any) -> Resources:
        if not isinstance(table, dict):
            raise self.error("[resources] is a table")
        known = {"cpus": float, "gpus": float, "memory_gb": float, "retries": int}
        self.check_keys(table, known, "[resources]")
        for name, value in table.items():
            if type(value) not in (int, known[name]):
                raise self.error(
                    f"[resources] takes a {'whole ' * (known[name] is int)}number for {name}, not {value!r}"
                )
        try:
            return Resources(**{name: known[name](value) for name, value in table.items()})
        except ExhumeError as error:
            raise self.error(str(error).rstrip(".")) from None

    def check_disjoint(self, sweep: Sweep) -> None:
        """Refuse a setting that is given in two places, since neither should win silently."""
        fixed = set(flatten_settings(dict(sweep.options)))
        by_case = {name for case in sweep.cases for name in flatten_settings(dict(case))}
        on_grid = {f"{command}.{name}" for command, values in sweep.grid.items() for name in values}
        for one, other in itertools.permutations((fixed, by_case, on_grid), 2):
            for name in sorted(one):
                if name in other or any(longer.startswith(f"{name}.") for longer in other):
                    raise self.error(f"{name} is set twice; keep it in one of [options], [[cases]] and [grid]")


def _nested(name: str, value: Any) -> dict[str, Any]:
    """Write a dotted name as nested tables; the inverse of :func:`flatten_settings` for one name."""
    first, _, rest = name.partition(".")
    return {first: _nested(rest, value) if rest else value}


def _joined(one: Settings, other: Settings) -> dict[str, Any]:
    """Join two tables, and the tables inside them; the second wins."""
    joined = dict(one)
    for name, value in other.items():
        both = isinstance(value, Mapping) and isinstance(joined.get(name), Mapping)
        joined[name] = _joined(joined[name], value) if both else value
    return joined
