"""Load a data set by name: read the source, choose the task, draw a training and a hold-out set, centre."""

from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.core.errors import DataError
from exhume.core.text import count_noun
from exhume.data.known_sources import read_source
from exhume.data.saved_dataset import find_saved_dataset, read_saved_dataset
from exhume.data.source import Examples, Source
from exhume.data.splits import draw_balanced, find_repeats
from exhume.data.tasks import Classes, Task, choose_task
from exhume.records import Dataset, Split


def load(
    name: str | Path,
    *,
    classes: Classes | None = None,
    size: int | None = None,
    test: int | None = None,
    seed: int = 0,
    centre: bool = True,
    label: str | None = None,
    data_dir: Path | str | None = None,
) -> Dataset:
    """Load a data set: a balanced training set, as many held-out examples, and a test set.

    Args:
        name: a known source (see :func:`exhume.data.available`), or the path of an ``.npz`` file, a ``.csv`` file or a
            folder of images; or a saved data set, such as the run folder of ``exhume distil``, which is returned as it
            is.
        classes: the task: ``"all"`` (the default), ``"odd-even"``, ``"animal-vehicle"``, classes to tell apart such as
            ``("cat", "dog")``, or groups such as ``{"pet": ["cat", "dog"], "farm": ["horse"]}``. The first is label 0.
            A string may spell these too: ``"cat,dog"``, ``"pet=cat,dog; farm=horse"``.
        size: number of training examples; by default the largest that leaves a hold-out set of the same size.
        test: number of test examples; by default the whole test split of a source that has one, else all examples
            that were not drawn. 0 means none.
        seed: fixes the draw. Smaller draws with the same seed are subsets of larger ones.
        centre: whether to subtract the training mean of images, one number for grey and one per channel for colour.
            Tables are standardised instead.
        label: the column of a CSV file that holds the classes.
        data_dir: folder to search before ``EXHUME_DATA`` and the download cache.

    Returns:
        A :class:`~exhume.records.Dataset` with inputs in pixel units; the mean to subtract is its ``offset``.

    Raises:
        DataError: when the source is missing, damaged or too small.

    >>> data = load("digits", classes="odd-even", size=20)
    >>> len(data.train), len(data.holdout), data.classes, data.input_shape
    (20, 20, ('odd', 'even'), (1, 8, 8))
    """
    if test is not None and test < 0:
        raise DataError(f"A test set cannot have {test} examples; 0 means none.")
    saved = find_saved_dataset(name)
    if saved is not None:
        return read_saved_dataset(
            saved, test=test, classes=classes, size=size, label=label, centre=None if centre else False
        )
    source = read_source(name, label=label, data_dir=data_dir)
    if len(source.classes) < 2:
        raise DataError(f"{name} has only one class, {source.classes[0]!r}; a task needs at least two.")
    task = choose_task(classes, source.classes)
    generator = torch.Generator().manual_seed(seed)

    labels = task.relabel(source.train.labels)
    drawable = labels.clone()
    drawable[find_repeats(source.train.inputs)] = -1
    draw = draw_balanced(drawable, task.classes, size, generator)
    train = _split(source.train, labels, draw.train)
    return Dataset(
        name=_describe(source, task),
        train=train,
        holdout=_split(source.train, labels, draw.holdout),
        test=_test_split(source, task, labels, draw.rest, test, generator),
        classes=task.classes,
        bounds=source.bounds,
        offset=_mean(train.inputs) if centre and source.bounds is not None else None,
        features=source.features,
    )


def _split(examples: Examples, labels: Int[Tensor, " example"], chosen: Int[Tensor, " chosen"]) -> Split:
    return Split(inputs=examples.take(chosen), labels=labels[chosen])


def _test_split(
    source: Source,
    task: Task,
    labels: Int[Tensor, " example"],
    rest: Int[Tensor, " rest"],
    size: int | None,
    generator: torch.Generator,
) -> Split | None:
    examples, chosen = source.train, rest
    if source.test is not None:
        examples, labels = source.test, task.relabel(source.test.labels)
        chosen = (labels >= 0).nonzero()[:, 0]
    if size is not None:
        if size > len(chosen):
            raise DataError(
                f"{source.name} has {count_noun(len(chosen), 'example')} left to test on, not {size}; ask for fewer."
            )
        chosen = chosen[torch.randperm(len(chosen), generator=generator)[:size]]
    return _split(examples, labels, chosen) if len(chosen) else None


def _mean(inputs: Float[Tensor, "example ..."]) -> Float[Tensor, "..."]:
    """Return one mean for grey or flat inputs and one per channel for colour, broadcastable to one input."""
    shape = inputs.shape[1:]
    channels = shape[0] if len(shape) == 3 else 1
    means = inputs.double().reshape(len(inputs), channels, -1).mean(dim=(0, 2))
    return means.to(inputs).reshape(channels, *[1] * (len(shape) - 1))


def _describe(source: Source, task: Task) -> str:
    return source.name if task.classes == source.classes else f"{source.name} {'-'.join(task.classes)}"
