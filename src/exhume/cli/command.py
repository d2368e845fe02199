"""Command functions without repetition: options from settings classes, and a console for every command."""

import ast
import functools
import inspect
import itertools
import textwrap
import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer

from exhume.cli.console import CommandConsole, open_console
from exhume.cli.options import DebugOption, JsonOption, QuietOption

CONSOLE_OPTIONS = {"as_json": JsonOption, "quiet": QuietOption, "debug": DebugOption}
"""The options of every command that decide what it prints."""

Group = tuple[str, tuple[type, ...]]
"""The help panel of some options, and the settings classes whose fields they are."""


def command(**groups: Group) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Complete the signature of a command function, so that typer sees every option.

    The parameter ``console`` becomes the options ``--json``, ``--quiet`` and ``--debug``; the function receives an open
    :class:`~exhume.cli.console.CommandConsole`. A parameter whose type is a dataclass of options becomes one option per
    field; the function receives an instance. A parameter named in ``groups`` becomes one option per field of the
    settings classes, with the type, default and documentation of the field; the function receives a dictionary. Fields
    that are parameters of the function already are left out.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(function, eval_str=True).parameters
        grouped = {name: _field_options(panel, classes, taken=own) for name, (panel, classes) in groups.items()}
        built: dict[str, Any] = {name: one.annotation for name, one in own.items() if is_dataclass(one.annotation)}
        grouped |= {name: _declared_options(cls) for name, cls in built.items()}
        parameters: list[inspect.Parameter] = []
        for name, parameter in own.items():
            if name in grouped:
                parameters += grouped[name].values()
            elif parameter.annotation is CommandConsole:
                parameters += [_option(one, kind, False) for one, kind in CONSOLE_OPTIONS.items()]
            else:
                parameters.append(parameter)

        @functools.wraps(function)
        def run(*positional: Any, **values: Any) -> None:
            for name, options in grouped.items():
                values[name] = {field: values.pop(field) for field in options}
            for name, cls in built.items():
                values[name] = cls(**values[name])
            with open_console(**{name: values.pop(name) for name in CONSOLE_OPTIONS}) as console:
                function(*positional, console=console, **values)

        described: Any = run
        described.__signature__ = inspect.Signature(parameters)
        described.__annotations__ = {one.name: one.annotation for one in parameters}
        del described.__wrapped__  # typer would read the signature that was completed here
        return run

    return decorate


def select_fields(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those values that are fields of a settings class."""
    return {field.name: values[field.name] for field in fields(cls) if field.name in values}


def read_field_docs(cls: type) -> dict[str, str]:
    """Return the first paragraph below each field of a class, without markup; nothing where there is no source file."""
    try:
        [definition] = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    except OSError:
        return {}
    assert isinstance(definition, ast.ClassDef)
    docs = {}
    for field, below in itertools.pairwise(definition.body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            paragraph = inspect.cleandoc(str(below.value.value)).split("\n\n")[0]
            docs[field.target.id] = " ".join(paragraph.replace("``", "").split())
    return docs


def _field_options(panel: str, classes: tuple[type, ...], *, taken: Mapping[str, Any]) -> dict[str, inspect.Parameter]:
    options: dict[str, inspect.Parameter] = {}
    for cls in classes:
        docs, hints = read_field_docs(cls), get_type_hints(cls, include_extras=True)
        for field in fields(cls):
            if not field.init or field.name in taken or field.name in options:
                continue
            kind = _without_limits(hints[field.name])
            name = f"--{field.name.replace('_', '-')}"
            option = typer.Option(
                f"{name}/--no-{name[2:]}" if field.default is True else name,
                help=docs.get(field.name),
                rich_help_panel=panel,
                metavar="" if kind is bool else None,
                callback=_check_limits(hints[field.name]),
            )
            options[field.name] = _option(field.name, Annotated[kind, option], field.default)
    return options


def _declared_options(cls: type) -> dict[str, inspect.Parameter]:
    """Return the options that a dataclass declares in the types of its fields."""
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: _option(field.name, hints[field.name], field.default) for field in fields(cls)}


def _option(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _without_limits(hint: Any) -> Any:
    """Return a type without the limits that typer cannot read."""
    if get_origin(hint) is Annotated:
        return _without_limits(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        return functools.reduce(lambda one, other: one | other, map(_without_limits, get_args(hint)))
    return hint


def _check_limits(hint: Any) -> Callable[[Any], Any]:
    """Return a callback that checks the value of an option by the type of its field."""

    def check(value: Any) -> Any:
        from pydantic import TypeAdapter, ValidationError

        try:
            TypeAdapter(hint).validate_python(value)
        except ValidationError as error:
            raise typer.BadParameter(f"{error.errors(include_url=False)[0]['msg']}, not {value}.") from None
        return value

    return check
