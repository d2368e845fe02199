"""Turn the tasks of a sweep into command lines, and let the commands check them before any runs."""

import difflib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import typer

from exhume.cli.attack_settings import build_all_attacks, build_attacks
from exhume.cli.pipeline import parse_names
from exhume.core.errors import ExhumeError
from exhume.sweeps import Job, Step, Task
from exhume.sweeps.sweep_file import flatten_settings

SET_BY_SWEEP = {"out": "every task has its own folder", "seed": "list them as seeds = [0, 1, 2] at the top"}
"""Options that the sweep itself sets, and how."""
OUTPUT_OPTIONS = ("quiet", "json", "debug")
"""Options about printed output; in a sweep it goes to the log of the task."""


def make_job(task: Task, out: Path) -> Job:
    """Turn a task into command lines, and check that every command accepts its line."""
    from exhume.cli.app import main  # the app imports this module

    folder = out / "tasks" / task.key
    lines = tuple(_build_line(step, task.seed, folder, is_first=step is task.steps[0]) for step in task.steps)
    return Job(
        key=task.key,
        lines=lines,
        folder=folder,
        place=Path.cwd(),
        settings=task.settings,
        seed=task.seed,
        run=main,
    )


def _build_line(step: Step, seed: int, folder: Path, *, is_first: bool) -> tuple[str, ...]:
    """Write a step as the words that a shell would pass, and let the command check them."""
    command = _find_command(step.command)
    known = {
        _name_parameter(parameter): parameter for parameter in command.params if _name_parameter(parameter) != "help"
    }
    for name in step.settings:
        if name in SET_BY_SWEEP or name in OUTPUT_OPTIONS:
            raise ExhumeError(
                f"A sweep sets --{name} of {step.command} itself: {SET_BY_SWEEP.get(name, 'output goes to log.txt')}."
            )
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}" if close else f"it has {', '.join(known)}"
            raise ExhumeError(f"exhume {step.command} has no option {name!r}; {hint}.")
    settings = dict(step.settings)
    if not is_first:  # it continues with what the commands before it made: a run, or a distilled set to train on
        if "run" in known and "run" not in settings and "model" not in settings:
            settings["run"] = str(folder)
        if step.command == "train":
            settings.setdefault("data", str(folder))
    words = [word for name, value in settings.items() for word in _write_option(known[name], name, value)]
    words += [f"--out={folder}"] + ([f"--seed={seed}"] if "seed" in known else []) + ["--quiet"] * ("quiet" in known)
    arguments = [str(one) for name in settings if _is_argument(known[name]) for one in _write_values(settings[name])]
    line = [*words, *(["--", *arguments] if arguments else [])]
    # The command parses the line without running; typer raises its own error for what it cannot accept.
    read = command.make_context(f"exhume {step.command}", list(line)).params
    if "setting" in read:  # typer does not know the names and settings of attacks
        names, values = parse_names(read["attack"]), read["setting"] or ()
        _ = build_attacks(names, values) if names else build_all_attacks(values)
    return (*step.command.split(), *line)


@cache
def _find_command(name: str) -> Any:
    """Return a command of the app by name; ``data show`` names a command of a group."""
    from exhume.cli.app import app

    here: Any = typer.main.get_command(app)
    for word in name.split():
        within = getattr(here, "commands", {})
        if word not in within:
            close = difflib.get_close_matches(word, within, n=1)
            hint = f"did you mean {close[0]}" if close else f"there are {', '.join(within) or 'none below it'}"
            raise ExhumeError(f"There is no command 'exhume {name}'; {hint}.")
        here = within[word]
    if getattr(here, "commands", None):
        raise ExhumeError(f"'exhume {name}' is a group of commands; name one of {', '.join(here.commands)}.")
    if name == "sweep":
        raise ExhumeError("A sweep cannot run sweeps.")
    return here


def _name_parameter(parameter: Any) -> str:
    """Return the name of a parameter in a sweep file: an option's first long name, or an argument's name."""
    if _is_argument(parameter):
        return str(parameter.name)
    return str(next(word for word in parameter.opts if word.startswith("--")).removeprefix("--"))


def _is_argument(parameter: Any) -> bool:
    return str(parameter.param_type_name) == "argument"


def _write_option(parameter: Any, name: str, value: Any) -> list[str]:
    """Write one option as words; arguments are written elsewhere, after all options."""
    if _is_argument(parameter):
        return []
    if getattr(parameter, "is_flag", False):
        if not isinstance(value, bool):
            raise ExhumeError(f"--{name} is true or false, not {value!r}.")
        if value:
            return [f"--{name}"]
        return list(parameter.secondary_opts[:1])
    if isinstance(value, bool):
        raise ExhumeError(f"--{name} takes a value, not {str(value).lower()}.")
    return [f"--{name}={text}" for text in _write_values(value)]


def _write_values(value: Any) -> list[str]:
    """Return one text per value of a list, or one NAME=VALUE per entry of a table."""
    if isinstance(value, Mapping):
        return [f"{name}={_write_value(one)}" for name, one in flatten_settings(value).items()]
    return [_write_value(one) for one in value] if isinstance(value, list) else [_write_value(value)]


def _write_value(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(_write_value(one) for one in value)}]"
    return str(value).lower() if isinstance(value, bool) else str(value)
