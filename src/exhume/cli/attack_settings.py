"""Attacks by name, and their settings from text."""

import difflib
import json
import re
import types
from collections.abc import Collection, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from exhume import attacks
from exhume.attacks.attack import Attack
from exhume.errors import ExhumeError


def known_attacks() -> dict[str, type[Attack]]:
    """Return every exported attack that can run without being told more, by the name the command line uses.

    >>> "weight-difference" in known_attacks()
    True
    """
    exported = (getattr(attacks, name) for name in attacks.__all__)
    kinds = [kind for kind in exported if isinstance(kind, type) and issubclass(kind, Attack) and kind is not Attack]
    return {_dashed(kind.__name__): kind for kind in kinds if not any(map(_required, fields(kind)))}


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
        place, separator, text = setting.partition("=")
        attack, _, field = place.strip().rpartition(".")
        field = field.replace("-", "_")
        if not separator or not field:
            raise ExhumeError(f"A setting reads NAME=VALUE, such as steps=2000, not {setting!r}.")
        if attack and attack not in chosen:
            raise ExhumeError(f"The setting {setting!r} is for {attack}, which is not among {', '.join(names)}.")
        for name in [attack] if attack else names:
            chosen[name][field] = _parse(known[name], name, field, text.strip())
    return {name: known[name](**values) for name, values in chosen.items()}


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
    try:
        value = json.loads(text.replace("_", "") if re.fullmatch(r"[\d_.eE+-]+", text) else text)
    except ValueError:
        return [text]
    return [tuple(value) if isinstance(value, list) else value, text]


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


def _required(field: "Field[Any]") -> bool:
    return field.init and field.default is MISSING and field.default_factory is MISSING


def _dashed(name: str) -> str:
    """Spell a class name as a word of the command line.

    >>> _dashed("GateCertificate")
    'gate-certificate'
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()


def _suggest(word: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]}" if close else f"there are {', '.join(known) or 'none'}"
