"""Examples to train on, and as many to measure against."""

from dataclasses import dataclass
from pathlib import Path

from jaxtyping import Float, Int
from torch import Tensor

from exhume.core.storage import add_prefix, load_bundle, save_bundle, select_prefix
from exhume.records.record import Bounds, Record, check_bounds, check_lengths, fits, pair, present


@dataclass(frozen=True, kw_only=True, eq=False)
class Split(Record):
    """Some examples: inputs in pixel units, class indices, and soft targets where labels alone do not say enough."""

    inputs: Float[Tensor, "example ..."]
    labels: Int[Tensor, " example"]
    targets: Float[Tensor, "example output"] | None = None

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset(Record):
    """A training set with a disjoint held-out set from the same source, the null every score is measured against."""

    name: str
    train: Split
    holdout: Split
    test: Split | None = None
    classes: tuple[str, ...]
    bounds: Bounds | None
    """The range of an input value before centring; None where there is none (tables)."""
    offset: Float[Tensor, "..."] | None = None
    """What is subtracted before the network sees an input, broadcastable to one input; None: nothing."""
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
        """How many outputs a network for this task has: one for two classes, else one a class."""
        if self.train.targets is not None:
            return self.train.targets.shape[1]
        return 1 if len(self.classes) == 2 else len(self.classes)

    def to_model(self, inputs: Float[Tensor, "example ..."]) -> Float[Tensor, "example ..."]:
        """Turn pixel units into what the network takes."""
        return inputs if self.offset is None else inputs - self.offset.to(inputs)

    def save(self, path: Path | str) -> None:
        """Save as one file."""
        tensors: dict[str, Tensor] = {}
        for name in ("train", "holdout", "test"):
            split: Split | None = getattr(self, name)
            if split is not None:
                tensors |= add_prefix(name, present(inputs=split.inputs, labels=split.labels, targets=split.targets))
        tensors |= present(offset=self.offset)
        values = {"name": self.name, "classes": self.classes, "bounds": self.bounds, "features": self.features}
        save_bundle(Path(path), "dataset", values, tensors)

    @classmethod
    def load(cls, path: Path | str) -> "Dataset":
        """Load what :meth:`save` wrote."""
        values, tensors = load_bundle(Path(path), "dataset")
        with fits(path, "dataset"):
            splits = {name: select_prefix(tensors, name) for name in ("train", "holdout", "test")}
            return cls(
                name=values["name"],
                classes=tuple(values["classes"]),
                bounds=pair(values["bounds"]),
                features=None if values["features"] is None else tuple(values["features"]),
                offset=tensors.get("offset"),
                train=_read_split(splits["train"]),
                holdout=_read_split(splits["holdout"]),
                test=_read_split(splits["test"]) if splits["test"] else None,
            )


def _read_split(tensors: dict[str, Tensor]) -> Split:
    check_lengths(inputs=tensors["inputs"], labels=tensors["labels"], **present(targets=tensors.get("targets")))
    return Split(**tensors)
