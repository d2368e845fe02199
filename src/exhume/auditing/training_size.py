"""Give attacks the number of training examples where the weights do not show it, and say so.

Some attacks need the training set size. An attacker reads it off the weights where they show it, and knows it where it
was published. Otherwise an audit takes it from the training data: a conservative assumption, since sizes are often
published or can be guessed, which every affected attack states as a caveat and the report prints.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

from exhume.attacks.attack import Attack
from exhume.clues.clues import Clues, clues_of
from exhume.clues.subspace import InputSubspace
from exhume.records import AttackerView, Dataset

SHOWN_BY: dict[str, Callable[[Clues], InputSubspace | None]] = {
    "weight-difference": lambda clues: clues.subspace,
    "bilevel": lambda clues: clues.subspace,
    "simulated-training": lambda clues: clues.subspace,
    "max-margin": lambda clues: clues.span,
    "stationarity": lambda clues: clues.span,
}
"""The clue that shows each attack the size, or that shows that other attacks will do better."""


class SizedAttacks(NamedTuple):
    """Attacks that know the training set size where they need it, and what that assumes."""

    view: AttackerView
    """The view, with the size among its facts where an attack was given it."""
    attacks: dict[str, Attack]
    remarks: dict[str, str]
    """For each attack that was given the size, where it comes from, in one sentence."""


def give_size(view: AttackerView, attacks: Mapping[str, Attack], data: Dataset | None) -> SizedAttacks:
    """Set the number of candidates of attacks that cannot read the training set size off the weights."""
    stated = view.training.training_size
    size = stated if stated is not None else None if data is None else len(data.train)
    lacking = [name for name, attack in attacks.items() if name in SHOWN_BY and _takes_candidates(attack)]
    if size is None or not lacking:
        return SizedAttacks(view, dict(attacks), {})
    clues = clues_of(view)
    lacking = [name for name in lacking if SHOWN_BY[name](clues) is None]
    if not lacking:
        return SizedAttacks(view, dict(attacks), {})
    source = (
        "was stated"
        if stated is not None
        else "was taken from the training data given; an attacker would have to know or guess it"
    )
    sized = {name: _with_candidates(attacks[name], size) for name in lacking}
    remark = f"The first layer does not show the number of training examples; {size} {source}."
    informed = replace(view, training=replace(view.training, training_size=size))
    return SizedAttacks(informed, dict(attacks) | sized, dict.fromkeys(lacking, remark))


def _takes_candidates(attack: Attack) -> bool:
    names = {field.name for field in fields(attack)}
    return "candidates" in names and getattr(attack, "candidates") is None  # noqa: B009 - not every attack has one


def _with_candidates(attack: Attack, size: int) -> Attack:
    oversampling = float(getattr(attack, "oversampling", 1.0))
    changed: dict[str, Any] = {"candidates": max(2, round(oversampling * size))}
    return replace(attack, **changed)
