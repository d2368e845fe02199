"""Tasks: how the classes of a source are grouped into the classes of a data set."""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from exhume.core.errors import DataError
from exhume.data.cifar import CIFAR_10
from exhume.data.idx import DIGITS

Members = Sequence[int | str]
Classes = str | Sequence[int | str] | Mapping[str, Members]
"""The name of a task, a list of source classes, or named groups of source classes."""

# The published tasks, with the classes that a source must have; the first group is label 0.
NAMED: dict[str, tuple[tuple[str, ...], dict[str, Members]]] = {
    "odd-even": (DIGITS, {"odd": (1, 3, 5, 7, 9), "even": (0, 2, 4, 6, 8)}),
    "animal-vehicle": (
        CIFAR_10,
        {
            "animal": ("bird", "cat", "deer", "dog", "frog", "horse"),
            "vehicle": ("airplane", "automobile", "ship", "truck"),
        },
    ),
}


@dataclass(frozen=True, kw_only=True)
class Task:
    """The classes of a data set, and to which of them each source class belongs (-1: none)."""

    classes: tuple[str, ...]
    label_of: Int[Tensor, " source_class"]

    def relabel(self, labels: Int[Tensor, " example"]) -> Int[Tensor, " example"]:
        """Turn source classes into labels of the task; -1 marks examples that the task does not use."""
        return self.label_of[labels]


def choose_task(classes: Classes | None, known: tuple[str, ...]) -> Task:
    """Return the task that a user asks for, on a source with the ``known`` classes.

    >>> choose_task({"round": [0, 8], "straight": ["1"]}, ("0", "1", "8")).label_of
    tensor([0, 1, 0])
    """
    if isinstance(classes, str):
        classes = _parse_task(classes, known)
    if classes is None:
        groups: dict[str, Members] = {name: (name,) for name in known}
    elif isinstance(classes, Mapping):
        groups = {str(name): members for name, members in classes.items()}
    else:
        groups = {known[_find_class(member, known)]: (member,) for member in classes}
        if len(groups) < len(classes):
            raise DataError(f"The classes {', '.join(map(str, classes))} name one class twice.")
    if len(groups) < 2:
        raise DataError(f"A task needs at least two classes, not {', '.join(groups) or 'none'}.")
    label_of = torch.full((len(known),), -1)
    for label, (name, members) in enumerate(groups.items()):
        if isinstance(members, str) or not members:
            raise DataError(f"The group {name!r} must list at least one class of the source, such as [{known[0]!r}].")
        for position in (_find_class(member, known) for member in members):
            if label_of[position] >= 0:
                raise DataError(f"Class {known[position]!r} occurs in the task twice.")
            label_of[position] = label
    return Task(classes=tuple(groups), label_of=label_of)


def _parse_task(text: str, known: tuple[str, ...]) -> Classes | None:
    """Read a task from one string: ``odd-even``, ``all``, ``cat,dog`` or ``pets=cat,dog; farm=horse``."""
    if text == "all":
        return None
    if text in NAMED:
        needed, groups = NAMED[text]
        if known != needed:
            raise DataError(f"The task {text!r} needs the classes {', '.join(needed)}; this source has others.")
        return groups
    if "=" in text:
        parts = [part.partition("=") for part in text.split(";")]
        if len({name.strip() for name, _, _ in parts}) < len(parts):
            raise DataError(f"The task {text!r} names a group twice.")
        return {name.strip(): _parse_members(members) for name, _, members in parts}
    if "," in text:
        return _parse_members(text)
    raise DataError(
        f"There is no task {text!r}; choose all, {', '.join(NAMED)}, classes such as {','.join(known[:2])!r}, "
        "or groups such as 'one=a,b; other=c'."
    )


def _parse_members(text: str) -> list[int | str]:
    return [member.strip() for member in text.split(",") if member.strip()]


def _find_class(member: int | str, known: tuple[str, ...]) -> int:
    """Return the index of a source class, given by name or, if no class has this name, by index."""
    if str(member) in known:
        return known.index(str(member))
    try:
        position = operator.index(member) if not isinstance(member, str) else int(member)
    except (TypeError, ValueError):
        position = -1
    if not 0 <= position < len(known):
        shown = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
        raise DataError(f"The source has no class {member!r}; its classes are {shown}.")
    return position
