"""Data sets: examples to train on, and held-out examples to measure against."""

from dataclasses import dataclass
from pathlib import Path

from jaxtyping import Float, Int
from torch import Tensor

from exhume.core.storage import add_prefix, load_bundle, save_bundle, select_prefix
from exhume.records.record import Bounds, Record, check_bounds, check_lengths, drop_none, read_bounds, refuse_misfits


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
                name=values["name"],
                classes=tuple(values["classes"]),
                bounds=read_bounds(values["bounds"]),
                features=None if values["features"] is None else tuple(values["features"]),
                offset=tensors.get("offset"),
                train=_read_split(splits["train"]),
                holdout=_read_split(splits["holdout"]),
                test=_read_split(splits["test"]) if splits["test"] else None,
            )


def _read_split(tensors: dict[str, Tensor]) -> Split:
    check_lengths(inputs=tensors["inputs"], labels=tensors["labels"], **drop_none(targets=tensors.get("targets")))
    return Split(**tensors)
