"""Turn labels into class names and indices."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from exhume.core.errors import DataError


def sort_classes(labels: Sequence[str]) -> tuple[str, ...]:
    """Return the distinct labels, sorted by value if all are numbers, else alphabetically.

    >>> sort_classes(["10", "9", "10"]), sort_classes(["dog", "cat"])
    (('9', '10'), ('cat', 'dog'))
    """
    distinct = sorted(set(labels))
    try:
        values = [float(label) for label in distinct]
    except ValueError:
        return tuple(distinct)
    if not all(map(math.isfinite, values)):
        return tuple(distinct)
    return tuple(label for _, label in sorted(zip(values, distinct, strict=True)))


def encode_labels(labels: Sequence[str], classes: tuple[str, ...], where: str) -> Int[Tensor, " example"]:
    """Return the index of each label in ``classes``.

    Raises:
        DataError: when a label is not in ``classes``.
    """
    index = {name: position for position, name in enumerate(classes)}
    unknown = [label for label in labels if label not in index]
    if unknown:
        raise DataError(f"{where} holds the label {unknown[0]!r}, which no training example has.")
    return torch.tensor([index[label] for label in labels], dtype=torch.long)
