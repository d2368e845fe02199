"""Data sets: examples to train on, and held-out examples to measure against."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from torch import Tensor

from exhume.core.errors import DataError
from exhume.core.storage import add_prefix, load_bundle, save_bundle, select_prefix
from exhume.core.text import first_sentence
from exhume.records.record import Bounds, Record, check_bounds, check_lengths, drop_none, read_bounds, refuse_misfits

LARGEST_CLASS = 10**6
"""Largest class index; labels beyond it are names or identifiers."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Split(Record):
    """Examples: inputs in pixel units, class indices, and soft targets where labels alone are not enough."""

    inputs: Float[Tensor, "example ..."]
    labels: Int[Tensor, " example"]
    targets: Float[Tensor, "example output"] | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    def take(self, chosen: "slice | Tensor") -> "Split":
        """Return the chosen examples."""
        targets = None if self.targets is None else self.targets[chosen]
        return Split(inputs=self.inputs[chosen], labels=self.labels[chosen], targets=targets)


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset(Record):
    """A training set with a disjoint hold-out set from the same source, the null of every score."""

    name: str
    train: Split
    holdout: Split
    test: Split | None = None
    classes: tuple[str, ...]
    bounds: Bounds | None
    """The range of an input value before centring; None where values are unbounded (tables)."""
    offset: Float[Tensor, "..."] | None = None
    """What is subtracted from an input before the network sees it, broadcastable to one input; None: nothing."""
    features: tuple[str, ...] | None = None
    """Column names of tabular data."""

    def __post_init__(self) -> None:
        check_bounds(self.bounds)

    @classmethod
    def from_arrays(
        cls,
        train: ArrayLike,
        holdout: ArrayLike | None = None,
        *,
        bounds: Bounds | None = (0.0, 1.0),
        labels: ArrayLike | None = None,
        holdout_labels: ArrayLike | None = None,
        classes: Iterable[str] | None = None,
        offset: Float[Tensor, "..."] | None = None,
        features: Iterable[str] | None = None,
        name: str = "your data",
    ) -> "Dataset":
        """Return a data set of arrays or tensors, one example per first index, in the units that the model receives.

        Args:
            train: the examples that the model was trained on.
            holdout: examples of the same kind that it was not trained on, which every score is compared with.
            bounds: the range of input values; None for tables and other unbounded values.
            labels: class indices of ``train``, for accuracies and captions; no attack needs them.
            holdout_labels: class indices of ``holdout``.
            classes: the names of the classes; their numbers by default.
            offset: what was subtracted from the values before the model received them; added back here, as records
                hold pixel units.
            features: column names of a table.
            name: what a report calls the data.

        Raises:
            DataError: when the arrays do not hold numbers, or their shapes or labels do not fit each other.
        """
        inputs = _read_inputs(train, "training examples")
        others = inputs[:0] if holdout is None else _read_inputs(holdout, "held-out examples")
        if others.shape[1:] != inputs.shape[1:]:
            raise DataError(
                f"The held-out examples have shape {tuple(others.shape[1:])}, the training examples "
                f"{tuple(inputs.shape[1:])}."
            )
        known = labels is not None and (holdout_labels is not None or not len(others))
        splits = [
            Split(inputs=values if offset is None else values + offset.to(values), labels=_read_labels(given, values))
            for values, given in ((inputs, labels), (others, holdout_labels))
        ]
        count = 1 + max((int(split.labels.max()) for split in splits if len(split)), default=0)
        return cls(
            name=name,
            train=splits[0],
            holdout=splits[1],
            classes=tuple(map(str, range(max(2, count)) if classes is None else classes)) if known else ("",),
            bounds=bounds,
            offset=offset,
            features=None if features is None else tuple(map(str, features)),
        )

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.train.inputs.shape[1:])

    @property
    def outputs(self) -> int:
        """The number of outputs of a network for this task: one for two classes, else one per class."""
        if self.train.targets is not None:
            return self.train.targets.shape[1]
        return 1 if len(self.classes) == 2 else len(self.classes)

    def to_model(self, inputs: Float[Tensor, "example ..."]) -> Float[Tensor, "example ..."]:
        """Convert pixel units to network inputs."""
        return inputs if self.offset is None else inputs - self.offset.to(inputs)

    def save(self, path: Path | str) -> None:
        """Save as one file."""
        tensors: dict[str, Tensor] = {}
        for name in ("train", "holdout", "test"):
            split: Split | None = getattr(self, name)
            if split is not None:
                tensors |= add_prefix(name, drop_none(inputs=split.inputs, labels=split.labels, targets=split.targets))
        tensors |= drop_none(offset=self.offset)
        values = {"name": self.name, "classes": self.classes, "bounds": self.bounds, "features": self.features}
        save_bundle(Path(path), "dataset", values, tensors)

    @classmethod
    def load(cls, path: Path | str) -> "Dataset":
        """Load what :meth:`save` wrote."""
        values, tensors = load_bundle(Path(path), "dataset")
        with refuse_misfits(path, "dataset"):
            splits = {name: select_prefix(tensors, name) for name in ("train", "holdout", "test")}
            return cls(
                name=_read_names([values["name"]])[0],
                classes=_read_names(values["classes"]),
                bounds=read_bounds(values["bounds"]),
                features=None if values["features"] is None else _read_names(values["features"]),
                offset=tensors.get("offset"),
                train=_read_split(splits["train"]),
                holdout=_read_split(splits["holdout"]),
                test=_read_split(splits["test"]) if splits["test"] else None,
            )


def _read_inputs(values: ArrayLike, what: str) -> Tensor:
    """Return values as a float32 tensor on the CPU."""
    try:
        inputs = values if isinstance(values, Tensor) else torch.from_numpy(np.ascontiguousarray(values))
        inputs = inputs.detach().cpu().to(torch.float32)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"The {what} must be an array of numbers ({first_sentence(error)}).") from error
    if inputs.ndim < 2 or 0 in inputs.shape[1:]:
        raise DataError(f"The {what} have shape {tuple(inputs.shape)}; the first index counts the examples.")
    return inputs


def _read_labels(labels: ArrayLike | None, inputs: Tensor) -> Tensor:
    """Return class indices; zeros where none are given."""
    if labels is None:
        return torch.zeros(len(inputs), dtype=torch.long)
    indices = torch.as_tensor(np.asarray(labels.detach().cpu() if isinstance(labels, Tensor) else labels))
    is_whole = not indices.is_floating_point() or bool((indices == indices.round()).all())
    if indices.numel() != len(inputs) or not is_whole or bool((indices < 0).any()):
        raise DataError(
            f"There are {len(inputs)} examples and labels of shape {tuple(indices.shape)}; each needs one class index."
        )
    if bool((indices > LARGEST_CLASS).any()):
        raise DataError(f"A label is {int(indices.max())}, but class indices count from 0; number the classes.")
    return indices.flatten().long()


def _read_names(names: Any) -> tuple[str, ...]:
    """Return names of a file, which a report sorts and prints."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TypeError("names are not text")
    return tuple(names)


def _read_split(tensors: dict[str, Tensor]) -> Split:
    check_lengths(inputs=tensors["inputs"], labels=tensors["labels"], **drop_none(targets=tensors.get("targets")))
    return Split(**tensors)
