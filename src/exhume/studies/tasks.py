"""The data that studies draw: a paper's task on a source, or a small training set with a large hold-out set."""

import functools
from dataclasses import replace

import torch

from exhume.data import load
from exhume.data.known_sources import available
from exhume.records import Dataset, Split

TWO_CLASSES = {"cifar-10": "animal-vehicle", "digits": "odd-even", "mnist": "odd-even"}
"""The task of Loo et al. (2023) on each source."""


def first_available(sources: str) -> str:
    """Return the first present source of a list spelt ``"mnist or digits"``; the last one if none is present.

    >>> first_available("digits or faces")
    'digits'
    """
    names = sources.split(" or ")
    present = {source.name for source in available() if source.present}
    return next((name for name in names if name in present), names[-1])


@functools.lru_cache(maxsize=4)
def load_task(source: str, size: int, seed: int, test: int | None = 0, *, all_classes: bool = False) -> Dataset:
    """Load a source with the two-class task of Loo et al. (2023), or with all its classes.

    The last few draws are cached, because figures train several networks on one draw.
    """
    if all_classes:
        return load(source, size=size, seed=seed, test=test)
    return load(source, classes=TWO_CLASSES.get(source), size=size, seed=seed, test=test)


def draw(source: str, classes: str, *, size: int, held_out: int, seed: int, shrink: int = 1) -> Dataset:
    """Draw a training set of ``size`` images and a hold-out set of at least ``held_out`` images.

    Args:
        source: name of the data source.
        classes: name of the task.
        size: number of training images.
        held_out: number of held-out images; at least ``size`` are drawn.
        seed: of both draws; the training set does not depend on ``held_out``.
        shrink: side of the square of pixels that are averaged into one; 1: none.
    """
    few = load(source, classes=classes, size=size, test=0, seed=seed)
    many = load(source, classes=classes, size=max(size, held_out), test=0, seed=seed)
    train = average_pixels(few.train, shrink)
    images = train.inputs
    offset = images.mean(dim=(0, 2, 3)).reshape(-1, 1, 1) if images.ndim == 4 else few.offset
    return replace(few, train=train, holdout=average_pixels(many.holdout, shrink), offset=offset)


def average_pixels(split: Split, factor: int) -> Split:
    """Average squares of pixels with side ``factor``."""
    if factor == 1:
        return split
    return Split(inputs=torch.nn.functional.avg_pool2d(split.inputs, factor), labels=split.labels)
