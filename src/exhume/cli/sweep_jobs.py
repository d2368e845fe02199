"""Turn tasks of a sweep into command lines, checked by the commands themselves before any runs."""

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

OURS = {"out": "every task has a folder of its own", "seed": "seeds = [0, 1, 2] at the top says which"}
"""Options that the sweep itself decides, and how."""
SPOKEN = ("quiet", "json", "debug")
"""Options about how a command speaks; in a sweep nobody listens, and errors are kept."""


def make_job(task: Task, out: Path) -> Job:
    """Turn a task into lines, and make sure that every one can be read before any runs."""
    from exhume.cli.app import main  # the app offers this command, too

    folder = out / "tasks" / task.key
    lines = tuple(_line(step, task.seed, folder, is_first=step is task.steps[0]) for step in task.steps)
    return Job(
        key=task.key,
        lines=lines,
        folder=folder,
        place=Path.cwd(),
        settings=task.settings,
        seed=task.seed,
        run=main,
    )


def _line(step: Step, seed: int, folder: Path, *, is_first: bool) -> tuple[str, ...]:
    """Write a step as the words a shell would pass, checked by the command itself."""
    command = _command(step.command)
    known = {_name(parameter): parameter for parameter in command.params if _name(parameter) != "help"}
    for name in step.settings:
        if name in OURS or name in SPOKEN:
            raise ExhumeError(
                f"A sweep decides --{name} of {step.command} itself: {OURS.get(name, 'log.txt keeps what it says')}."
            )
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}" if close else f"it has {', '.join(known)}"
            raise ExhumeError(f"exhume {step.command} has no option {name!r}; {hint}.")
    settings = dict(step.settings)
    if not is_first:  # then it goes on with what the commands before it made: a run, or a distilled set to train on
        if "run" in known and "run" not in settings and "model" not in settings:
            settings["run"] = str(folder)
        if step.command == "train":
            settings.setdefault("data", str(folder))
    words = [word for name, value in settings.items() for word in _words(known[name], name, value)]
    words += [f"--out={folder}"] + ([f"--seed={seed}"] if "seed" in known else []) + ["--quiet"] * ("quiet" in known)
    places = [str(one) for name in settings if _is_place(known[name]) for one in _listed(settings[name])]
    line = [*words, *(["--", *places] if places else [])]
    # Read by the command itself, as if called; it raises typer's own error for what it cannot take.
    read = command.make_context(f"exhume {step.command}", list(line)).params
    if "setting" in read:  # of attacks, whose names and settings typer does not know
        names, values = parse_names(read["attack"]), read["setting"] or ()
        _ = build_attacks(names, values) if names else build_all_attacks(values)
    return (*step.command.split(), *line)


@cache
def _command(name: str) -> Any:
    """Return a command of the app by name; ``data show`` names one of a group."""
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
        raise ExhumeError("A sweep runs other commands than itself.")
    return here


def _name(parameter: Any) -> str:
    """Return what a sweep calls a parameter: an option's first long name, an argument's own."""
    if _is_place(parameter):
        return str(parameter.name)
    return str(next(word for word in parameter.opts if word.startswith("--")).removeprefix("--"))


def _is_place(parameter: Any) -> bool:
    return str(parameter.param_type_name) == "argument"


def _words(parameter: Any, name: str, value: Any) -> list[str]:
    """Write one setting as words; arguments come last and elsewhere."""
    if _is_place(parameter):
        return []
    if getattr(parameter, "is_flag", False):
        if not isinstance(value, bool):
            raise ExhumeError(f"--{name} is true or false, not {value!r}.")
        if value:
            return [f"--{name}"]
        return list(parameter.secondary_opts[:1])
    if isinstance(value, bool):
        raise ExhumeError(f"--{name} takes a value, not {str(value).lower()}.")
    return [f"--{name}={text}" for text in _listed(value)]


def _listed(value: Any) -> list[str]:
    """Return the texts of a repeated option: of a list one by one, of a table as NAME=VALUE."""
    if isinstance(value, Mapping):
        return [f"{name}={_text(one)}" for name, one in flatten_settings(value).items()]
    return [_text(one) for one in value] if isinstance(value, list) else [_text(value)]


def _text(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(_text(one) for one in value)}]"
    return str(value).lower() if isinstance(value, bool) else str(value)
