"""Every attack by name, its cost relative to the others, and its caveats.

Every attack that :mod:`exhume.attacks` exports is found automatically; an entry in :data:`CATALOGUE` adds its cost and
its caveats.
"""

import ast
import re
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any

from exhume import attacks
from exhume.attacks.attack import Attack
from exhume.auditing import caveats
from exhume.clues.clues import Remark


@dataclass(frozen=True)
class Entry:
    """What is known about an attack beyond its own ``check``."""

    cost: int
    """Rank among the attacks by typical run time, the cheapest first: seconds, minutes, hours."""
    obstacles: tuple[Remark, ...] = ()
    """Reasons why it cannot work that its quick ``check`` does not see."""
    caveats: tuple[Remark, ...] = ()


CATALOGUE: dict[str, Entry] = {
    "gate-certificate": Entry(
        1,
        (caveats.no_visible_rank,),
        (caveats.crowded, caveats.nearly_full, caveats.unclear_count, caveats.only_features, *caveats.COMMON),
    ),
    "level-lattice": Entry(2, (caveats.no_visible_span,), (caveats.coarse, caveats.augmented)),
    "last-layer": Entry(3, (), (caveats.batch_norm, caveats.dropout)),
    "feature-edges": Entry(3, (), (caveats.coarse, caveats.augmented)),
    "weight-difference": Entry(4, (), (caveats.moved_features, *caveats.COMMON)),
    "simulated-training": Entry(
        5,
        (),
        (
            caveats.start_decides,
            caveats.unknown_batches,
            caveats.noisy_training,
            caveats.augmented,
            caveats.dropout,
            caveats.coarse,
        ),
    ),
    "stationarity": Entry(6, (), (caveats.no_weight_decay, *caveats.COMMON)),
    "max-margin": Entry(7, (), (caveats.not_a_margin_loss, *caveats.COMMON)),
    "bilevel": Entry(8, (), (caveats.start_decides, *caveats.COMMON)),
}
UNLISTED = Entry(9, (), caveats.COMMON)
"""The entry of attacks without one of their own: they run last."""


def known_attacks() -> dict[str, type[Attack]]:
    """Return every exported attack that has defaults for all settings, by its name on the command line.

    >>> "weight-difference" in known_attacks()
    True
    """
    exported = (getattr(attacks, name) for name in attacks.__all__)
    kinds = [kind for kind in exported if isinstance(kind, type) and issubclass(kind, Attack) and kind is not Attack]
    return {attack_name(kind): kind for kind in kinds if not any(map(_required, fields(kind)))}


def by_cost() -> list[str]:
    """Return the names of all known attacks, the cheapest first."""
    return sorted(known_attacks(), key=lambda name: CATALOGUE.get(name, UNLISTED).cost)


def attack_name(kind: type[Attack]) -> str:
    """Return the name of an attack on the command line."""
    return dashed(kind.__name__)


def dashed(name: str) -> str:
    """Spell a class name as on the command line.

    >>> dashed("GateCertificate")
    'gate-certificate'
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()


def shorten_settings(attack: str) -> str:
    """Return the ``repr`` of an attack with only the settings that differ from their defaults.

    >>> from exhume.attacks import WeightDifference
    >>> shorten_settings(repr(WeightDifference(steps=500)))
    'WeightDifference(steps=500)'
    """
    kinds = {kind.__name__: kind for kind in known_attacks().values()}
    try:
        given = ast.parse(attack, mode="eval").body
        if not isinstance(given, ast.Call):
            return attack
        kind = kinds[ast.unparse(given.func)]
        usual = ast.parse(repr(kind()), mode="eval").body
    except (SyntaxError, KeyError, ValueError):
        return attack
    assert isinstance(usual, ast.Call)
    defaults = {word.arg: ast.unparse(word.value) for word in usual.keywords}
    texts = [(word.arg, ast.unparse(word.value)) for word in given.keywords]
    different = [f"{name}={text}" for name, text in texts if defaults.get(name) != text]
    return f"{kind.__name__}({', '.join([*map(ast.unparse, given.args), *different])})"


def _required(field: "Field[Any]") -> bool:
    return field.init and field.default is MISSING and field.default_factory is MISSING
