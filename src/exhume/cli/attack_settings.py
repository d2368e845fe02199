"""Build attacks from their names and from settings such as ``steps=2000``."""

from collections.abc import Sequence
from dataclasses import fields

from exhume.attacks.attack import Attack
from exhume.auditing.catalogue import known_attacks
from exhume.core.errors import ExhumeError
from exhume.core.settings_from_text import parse_settings, suggest


def build_attacks(names: Sequence[str], settings: Sequence[str]) -> dict[str, Attack]:
    """Build the named attacks with settings such as ``steps=2000`` (all of them) or ``weight-difference.steps=2000``.

    Raises:
        ExhumeError: when there is no such attack or setting, or the value does not fit; the message lists what does.
    """
    known = known_attacks()
    for name in names:
        if name not in known:
            raise ExhumeError(f"There is no attack {name!r}; {suggest(name, known)}.")
    if len(set(names)) < len(names):
        raise ExhumeError("The same attack is named twice; run it in another folder instead.")
    texts: dict[str, dict[str, str]] = {name: {} for name in names}
    for setting in settings:
        attack, field, text = split_setting(setting)
        if attack and attack not in texts:
            raise ExhumeError(f"The setting {setting!r} is for {attack}, which is not among {', '.join(names)}.")
        for name in [attack] if attack else names:
            texts[name][field] = text
    return {name: _build(name, known[name], given) for name, given in texts.items()}


def build_all_attacks(settings: Sequence[str]) -> dict[str, Attack]:
    """Build every known attack; a setting without the name of an attack goes to those that have it.

    Raises:
        ExhumeError: when no attack has such a setting, or a value does not fit.
    """
    known = known_attacks()
    field_names = {name: [field.name for field in fields(kind)] for name, kind in known.items()}
    chosen: dict[str, list[str]] = {name: [] for name in known}
    for setting in settings:
        attack, field, _ = split_setting(setting)
        takers = [attack] if attack else [name for name in known if field in field_names[name]]
        if not takers:
            every = dict.fromkeys(one for names in field_names.values() for one in names)
            raise ExhumeError(f"No attack has a setting {field!r}; {suggest(field, every)}.")
        for name in takers:
            chosen.setdefault(name, []).append(setting)
    return {name: built for name, own in chosen.items() for built in build_attacks([name], own).values()}


def split_setting(setting: str) -> tuple[str, str, str]:
    """Split ``attack.field=text`` into attack (empty for all), field and text.

    >>> split_setting("spade.dig-deep = yes")
    ('spade', 'dig_deep', 'yes')
    """
    place, separator, text = setting.partition("=")
    attack, _, field = place.strip().rpartition(".")
    if not separator or not field:
        raise ExhumeError(f"A setting reads NAME=VALUE, such as steps=2000, not {setting!r}.")
    return attack, field.replace("-", "_"), text.strip()


def _build(name: str, kind: type[Attack], texts: dict[str, str]) -> Attack:
    known = known_attacks()
    helpers = {text: known[text]() for text in texts.values() if text in known}
    names = {Attack: "the name of an attack"}
    return kind(**parse_settings(kind, texts, name=name, objects=helpers, type_names=names))
