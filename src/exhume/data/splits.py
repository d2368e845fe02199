"""Draw a balanced training set and a hold-out set of the same size."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from exhume.core.errors import DataError
from exhume.core.text import count_noun


@dataclass(frozen=True, kw_only=True)
class Draw:
    """Disjoint sets of example indices, each in random order."""

    train: Int[Tensor, " train"]
    holdout: Int[Tensor, " train"]
    rest: Int[Tensor, " rest"]


def draw_balanced(
    labels: Int[Tensor, " example"], classes: Sequence[str], size: int | None, generator: torch.Generator
) -> Draw:
    """Draw ``size`` training examples and as many held-out examples, balanced over ``classes``.

    Examples with a label below zero are never drawn. If the size is not a multiple of the number of classes, the first
    classes get one more example. A size of None draws the largest possible set. Smaller draws with the same seed are
    subsets of larger ones: training examples come from the front of each class's random order, held-out examples from
    its back.
    """
    pools = [(labels == label).nonzero()[:, 0] for label in range(len(classes))]
    most = len(classes) * (min(map(len, pools)) // 2)
    for name, pool in zip(classes, pools, strict=True):
        if len(pool) < 2:
            raise DataError(
                f"Class {name!r} has {len(pool)} distinct example{'s' * (len(pool) != 1)}; "
                "it needs at least two, one to train on and one to hold out."
            )
    size = most if size is None else size
    if size < len(classes):
        raise DataError(
            f"A training set of {size} is too small for {len(classes)} classes; use one example per class or more."
        )
    counts = [size // len(classes) + (label < size % len(classes)) for label in range(len(classes))]
    for name, pool, count in zip(classes, pools, counts, strict=True):
        if 2 * count > len(pool):
            raise DataError(
                f"A training set of {size} needs {count_noun(count, 'example')} of class {name!r} and as many held "
                f"out, but there are {len(pool)}; the largest balanced size is {most}."
            )
    orders = [_shuffle(pool, generator) for pool in pools]
    train = torch.cat([order[:count] for order, count in zip(orders, counts, strict=True)])
    holdout = torch.cat([order[len(order) - count :] for order, count in zip(orders, counts, strict=True)])
    rest = torch.cat([order[count : len(order) - count] for order, count in zip(orders, counts, strict=True)])
    return Draw(train=_shuffle(train, generator), holdout=_shuffle(holdout, generator), rest=_shuffle(rest, generator))


def find_repeats(inputs: Shaped[Tensor, "example ..."]) -> Int[Tensor, " repeat"]:
    """Return the indices of inputs that equal an earlier input bit for bit.

    They are not drawn, because a copy of a training input in the hold-out set would count as its recovery.
    """
    seen: set[bytes] = set()
    repeats = []
    for index, row in enumerate(inputs.reshape(len(inputs), -1).numpy()):
        digest = hashlib.blake2b(row.tobytes(), digest_size=16).digest()
        if digest in seen:
            repeats.append(index)
        seen.add(digest)
    return torch.tensor(repeats, dtype=torch.long)


def _shuffle(indices: Int[Tensor, " any"], generator: torch.Generator) -> Int[Tensor, " any"]:
    return indices[torch.randperm(len(indices), generator=generator)]
