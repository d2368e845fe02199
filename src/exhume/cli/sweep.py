"""``exhume sweep``: any command over a grid of settings and seeds, here or on a cluster."""

import difflib
import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from exhume.cli import options
from exhume.cli.attack_settings import build_attacks, build_every
from exhume.cli.console import open_console
from exhume.cli.invocation import invocation
from exhume.cli.pipeline import named
from exhume.core.errors import ExhumeError
from exhume.sweeps import Job, LocalEngine, RayEngine, Step, Task, conduct, read_sweep
from exhume.sweeps.plan import dotted

EngineName = Literal["local", "ray"]

SOME_FAILED = 1
"""The exit code of a sweep some of whose tasks failed."""
FAILURES_SHOWN = 5
OURS = {"out": "every task has a folder of its own", "seed": "seeds = [0, 1, 2] at the top says which"}
"""Options that the sweep itself decides, and how."""
SPOKEN = ("quiet", "json", "debug")
"""Options about how a command speaks; in a sweep nobody listens, and errors are kept."""


def sweep_command(
    file: Annotated[Path, typer.Argument(metavar="SWEEP.toml", help="Commands, options, a grid and seeds.")],
    *,
    engine: Annotated[
        EngineName,
        typer.Option("--engine", help="local: one task after the other; ray: many at a time, on one machine or many."),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            "--address", metavar="HOST:PORT", help="A running Ray cluster, or auto; without it, Ray starts here."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the file, say what would run, run nothing.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="The folder to write to.", show_default="out/sweep/FILE"),
    ] = None,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    debug: options.DebugOption = False,
) -> None:
    """Run commands over a grid of settings and seeds, and gather what they say in one table and one page.

    Exits with 0, with 1 if tasks failed (the table says why), with 2 on bad input. Killed or interrupted, the same
    command continues with the tasks that are not done.
    """
    with open_console(as_json=as_json, quiet=quiet, debug=debug) as console:
        if address is not None and engine != "ray":
            raise ExhumeError("--address goes with --engine ray.")
        plan = read_sweep(file)
        place = out or Path("out/sweep") / file.stem
        jobs = [_job(task, place.absolute()) for task in plan.tasks()]
        console.note(f"{len(jobs)} task{'s' * (len(jobs) != 1)} of {', then '.join(plan.commands)}")
        if dry_run:
            for job in jobs:
                console.print(" && ".join(shlex.join(("exhume", *line)) for line in job.lines))
            console.print_json({"tasks": len(jobs), "lines": [list(map(list, job.lines)) for job in jobs]})
            return
        chosen = (
            LocalEngine()
            if engine == "local"
            else RayEngine(address=address, resources=plan.resources, log=place / "ray.log", tell=console.note)
        )
        try:
            with console.progress() as progress:
                told = conduct(plan, jobs, chosen, place, title=file.stem, command=invocation(), progress=progress)
        except KeyboardInterrupt:
            console.note(f"Interrupted; {place} keeps what is done, and the same command continues.")
            raise
        again = f", {told.found} of them by an earlier call" if told.found else ""
        console.print(
            f"{len(told.records) - len(told.failed)} of {told.tasks} tasks done{again}, {len(told.failed)} failed."
        )
        for record in told.failed[:FAILURES_SHOWN]:
            console.print(f"{record.key} failed: {record.message}")
        if more := len(told.failed[FAILURES_SHOWN:]):
            console.print(f"{more} more failed; the table says why.")
        console.print(f"Open {told.page}; for machines, {told.table}.")
        console.print_json(
            {
                "tasks": told.tasks,
                "done": len(told.records) - len(told.failed),
                "failed": {record.key: record.message for record in told.failed},
                "table": str(told.table),
                "page": str(told.page),
            }
        )
        if told.failed:
            raise typer.Exit(SOME_FAILED)


def _job(task: Task, out: Path) -> Job:
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
        names, values = named(read["attack"]), read["setting"] or ()
        _ = build_attacks(names, values) if names else build_every(values)
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
        return [f"{name}={_text(one)}" for name, one in dotted(value).items()]
    return [_text(one) for one in value] if isinstance(value, list) else [_text(value)]


def _text(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(_text(one) for one in value)}]"
    return str(value).lower() if isinstance(value, bool) else str(value)
