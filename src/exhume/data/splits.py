"""Balanced draws: a training set, as many examples held out, and the rest."""

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
    """Indices of examples, disjoint, each in random order."""

    train: Int[Tensor, " train"]
    holdout: Int[Tensor, " train"]
    rest: Int[Tensor, " rest"]


def draw_balanced(
    labels: Int[Tensor, " example"], classes: Sequence[str], size: int | None, generator: torch.Generator
) -> Draw:
    """Draw ``size`` training examples and as many held-out ones, balanced over ``classes``.

    Labels below zero take no part. Where the classes do not divide the size, the first ones get one example more.
    ``None`` draws the most that leaves as many held out. Smaller draws of one seed lie within larger ones: training
    examples come from the front of each class's random order and held-out ones from its back.
    """
    pools = [(labels == label).nonzero()[:, 0] for label in range(len(classes))]
    most = len(classes) * (min(map(len, pools)) // 2)
    for name, pool in zip(classes, pools, strict=True):
        if len(pool) < 2:
            raise DataError(
                f"Class {name!r} has {len(pool)} distinct example{'s' * (len(pool) != 1)}; "
                "two are the least, one to train on and one to hold out."
            )
    size = most if size is None else size
    if size < len(classes):
        raise DataError(f"A training set of {size} is too small for {len(classes)} classes; take one of each at least.")
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
    """Return the indices of inputs that equal an earlier one, bit by bit.

    A copy of a training input among the held-out ones would count as its recovery; so copies take no part in a draw.
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
