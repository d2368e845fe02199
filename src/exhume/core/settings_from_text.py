"""Read settings from text such as ``steps=2000``, by the types that a settings class declares."""

import difflib
import json
import re
import types
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from exhume.core.errors import ExhumeError

WORDS = {"none": None, "true": True, "false": False, "yes": True, "no": False}
"""Words that stand for values; case does not matter."""
LARGEST_INTEGER = 2**63 - 1
"""The largest integer that PyTorch can hold."""
TYPE_NAMES: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a word",
    types.NoneType: "none",
}
TYPE_ERRORS = ("type", "parsing", "instance_of", "literal", "callable", "number", "missing")
"""Parts of pydantic's error codes that mean a wrong type; other errors are about limits."""


def parse_settings(
    cls: type,
    texts: Mapping[str, str],
    *,
    name: str | None = None,
    objects: Mapping[str, Any] | None = None,
    type_names: Mapping[Any, str] | None = None,
) -> dict[str, Any]:
    """Return the values of the fields of a dataclass that are given as text.

    Texts are words, numbers (``20_000`` and ``1e3`` included), ``none``, ``true``, ``no``, and JSON lists.

    Args:
        cls: a dataclass; its annotations decide how a text is read and which values are valid.
        texts: texts by field name.
        name: the name of the class in messages.
        objects: values that may be given by name, such as attacks.
        type_names: how messages describe the types of these objects.

    Raises:
        ExhumeError: when there is no such field or the text does not fit; the message lists what does.
    """
    shown, names = name or cls.__name__, TYPE_NAMES | dict(type_names or {})
    hints = get_type_hints(cls, include_extras=True)
    accepted = {field.name: _describe(hints[field.name], names) for field in fields(cls) if field.init}
    readable = {field: kinds for field, kinds in accepted.items() if kinds}
    values = {}
    for field, text in texts.items():
        if field not in readable:
            raise ExhumeError(f"{shown} has no setting {field!r}; {suggest(field, readable)}.")
        expected = f"{shown} takes {' or '.join(readable[field])} for {field}, not {text!r}."
        values[field] = _read(hints[field], text, objects or {}, expected)
    return values


def parse_value(text: str) -> Any:
    """Read a text of unknown type: none, a boolean, a JSON value or a word.

    >>> parse_value("1e-3"), parse_value("adam"), parse_value("no")
    (0.001, 'adam', False)
    """
    return WORDS[text.lower()] if text.lower() in WORDS else _read_json(text)


def suggest(word: str, known: Collection[str]) -> str:
    """Return the known word that is most similar, or all of them, as the end of a message.

    >>> suggest("step", ["steps", "lr"]), suggest("x", ["steps", "lr"])
    ('did you mean steps', 'there are steps, lr')
    """
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]}" if close else f"there are {', '.join(known) or 'none'}"


def _read(hint: Any, text: str, objects: Mapping[str, Any], expected: str) -> Any:
    """Return the first reading of a text that fits a type."""
    adapter = TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False))
    beyond_limits = None
    for reading in _readings(text, objects):
        try:
            return adapter.validate_python(reading, strict=True)
        except ValidationError as error:
            for problem in error.errors(include_url=False):
                if not any(part in problem["type"] for part in TYPE_ERRORS):
                    beyond_limits = problem["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    if beyond_limits:
        raise ExhumeError(expected.replace(", not", f" {beyond_limits}, not"))
    raise ExhumeError(expected)


def _readings(text: str, objects: Mapping[str, Any]) -> list[Any]:
    """Return what a text may mean, the most likely first."""
    if text.lower() in WORDS:
        return [WORDS[text.lower()], text]
    if text in objects:
        return [objects[text], text]
    value = _read_json(text)
    if isinstance(value, int | float) and abs(value) > LARGEST_INTEGER:
        return [float(value), text] if isinstance(value, float) else [text]
    whole = [int(value)] if isinstance(value, float) and value.is_integer() else []  # 1e3 steps
    return [_as_tuple(value), *whole, text]


def _read_json(text: str) -> Any:
    try:
        return json.loads(text.replace("_", "") if re.fullmatch(r"[\d_.eE+-]+", text) else text)
    except (ValueError, RecursionError):
        return text


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value


def _describe(hint: Any, names: Mapping[Any, str]) -> list[str]:
    """Return which values a type takes, in words; nothing for a type that no text can express."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _describe(parts[0], names)
    if origin in (Union, types.UnionType):
        return [word for part in parts for word in _describe(part, names)]
    if origin is Literal:
        return [str(choice) for choice in parts]
    if origin is tuple:
        readable = all(_describe(part, names) for part in parts if part is not Ellipsis)
        return ["a list such as [1, 2]"] if readable else []
    return [names[hint]] if hint in names else []
