"""Class labels as they come, turned into class names and indices."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from exhume.core.errors import DataError


def sort_classes(labels: Sequence[str]) -> tuple[str, ...]:
    """Return the distinct labels in order: by value when all are numbers, else by the alphabet.

    >>> class_names(["10", "9", "10"]), class_names(["dog", "cat"])
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
    """Turn labels into indices of ``classes``."""
    index = {name: position for position, name in enumerate(classes)}
    unknown = [label for label in labels if label not in index]
    if unknown:
        raise DataError(f"{where} holds the label {unknown[0]!r}, which no training example has.")
    return torch.tensor([index[label] for label in labels], dtype=torch.long)
