"""Attacks by name, and their settings from text."""

import difflib
import json
import re
import types
from collections.abc import Collection, Sequence
from dataclasses import fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from exhume.attacks.attack import Attack
from exhume.auditing.catalogue import known_attacks
from exhume.core.errors import ExhumeError


def build_attacks(names: Sequence[str], settings: Sequence[str]) -> dict[str, Attack]:
    """Build the named attacks with settings such as ``steps=2000`` (all of them) or ``weight-difference.steps=2000``.

    Raises:
        ExhumeError: when there is no such attack or setting, or the value does not fit; the message lists what does.
    """
    known = known_attacks()
    for name in names:
        if name not in known:
            raise ExhumeError(f"There is no attack {name!r}; {_suggest(name, known)}.")
    if len(set(names)) < len(names):
        raise ExhumeError("The same attack is named twice; run it in another folder instead.")
    chosen: dict[str, dict[str, Any]] = {name: {} for name in names}
    for setting in settings:
        attack, field = _place(setting)
        text = setting.partition("=")[2]
        if attack and attack not in chosen:
            raise ExhumeError(f"The setting {setting!r} is for {attack}, which is not among {', '.join(names)}.")
        for name in [attack] if attack else names:
            chosen[name][field] = _parse(known[name], name, field, text.strip())
    return {name: known[name](**values) for name, values in chosen.items()}


def build_every(settings: Sequence[str]) -> dict[str, Attack]:
    """Build every known attack; a setting without the name of an attack goes to those that have it.

    Raises:
        ExhumeError: when no attack has such a setting, or a value does not fit.
    """
    known = known_attacks()
    mine: dict[str, list[str]] = {name: [] for name in known}
    theirs = {name: [f.name for f in fields(kind)] for name, kind in known.items()}
    for setting in settings:
        attack, field = _place(setting)
        having = [attack] if attack else [name for name in known if field in theirs[name]]
        if not having:
            every = dict.fromkeys(one for names in theirs.values() for one in names)
            raise ExhumeError(f"No attack has a setting {field!r}; {_suggest(field, every)}.")
        for name in having:
            mine.setdefault(name, []).append(setting)
    return {name: built for name, own in mine.items() for built in build_attacks([name], own).values()}


def _place(setting: str) -> tuple[str, str]:
    """Return the attack that a setting is for, empty for all, and the name of the setting."""
    place, separator, _ = setting.partition("=")
    attack, _, field = place.strip().rpartition(".")
    if not separator or not field:
        raise ExhumeError(f"A setting reads NAME=VALUE, such as steps=2000, not {setting!r}.")
    return attack, field.replace("-", "_")


def plain_value(text: str) -> Any:
    """Read a value that nothing is known about: none, a truth, a JSON value or a word.

    >>> plain_value("1e-3"), plain_value("adam"), plain_value("no")
    (0.001, 'adam', False)
    """
    return _PLAIN[text.lower()] if text.lower() in _PLAIN else _json_or_word(text)


def _parse(kind: type[Attack], attack: str, field: str, text: str) -> Any:
    hints = get_type_hints(kind)
    settable = {f.name: hints[f.name] for f in fields(kind) if f.init and _describe(hints[f.name])}
    if field not in settable:
        raise ExhumeError(f"{attack} has no setting {field!r}; {_suggest(field, settable)}.")
    for value in _readings(text):
        if _fits(value, settable[field]):
            return _as_asked(value, settable[field])
    raise ExhumeError(f"{attack} takes {' or '.join(_describe(settable[field]))} for {field}, not {text!r}.")


def _readings(text: str) -> list[Any]:
    """Return what a text may mean, the likeliest first: none or a truth, a JSON value, 20_000, an attack, a word."""
    known = known_attacks()
    if text.lower() in _PLAIN:
        return [_PLAIN[text.lower()], text]
    if text in known:
        return [known[text](), text]
    value = _json_or_word(text)
    whole = [int(value)] if isinstance(value, float) and value.is_integer() else []  # 1e3 steps
    return [tuple(value) if isinstance(value, list) else value, *whole, text]


def _json_or_word(text: str) -> Any:
    try:
        return json.loads(text.replace("_", "") if re.fullmatch(r"[\d_.eE+-]+", text) else text)
    except (ValueError, RecursionError):
        return text


_PLAIN = {"none": None, "true": True, "false": False, "yes": True, "no": False}
_NAMES: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a word",
    types.NoneType: "none",
    Attack: "the name of an attack",
}


def _fits(value: Any, hint: Any) -> bool:
    """Tell whether a value is of a type as settings have them."""
    parts = get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if get_origin(hint) is Literal:
        return value in parts
    if get_origin(hint) is tuple:
        if not isinstance(value, tuple):
            return False
        expected = parts[:1] * len(value) if parts[-1] is Ellipsis else parts
        return len(value) == len(expected) and all(map(_fits, value, expected))
    if isinstance(value, bool):  # which Python takes for a number
        return hint is bool
    if isinstance(value, int) and abs(value) >= 2**63:  # which PyTorch cannot hold
        return False
    return hint in _NAMES and isinstance(value, int | float if hint is float else hint)


def _as_asked(value: Any, hint: Any) -> Any:
    """Write a whole number with a point where numbers have one, so that ``repr`` shows settings alike."""
    kinds = (hint, *get_args(hint))
    whole = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if whole and float in kinds and int not in kinds else value


def _describe(hint: Any) -> list[str]:
    """Say which values a type takes; nothing for a type that no text can spell."""
    parts = get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return [word for part in parts for word in _describe(part)]
    if get_origin(hint) is Literal:
        return [str(choice) for choice in parts]
    if get_origin(hint) is tuple:
        return ["a list such as [1, 2]"] if all(_describe(part) for part in parts if part is not Ellipsis) else []
    return [_NAMES[hint]] if hint in _NAMES else []


def _suggest(word: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]}" if close else f"there are {', '.join(known) or 'none'}"
