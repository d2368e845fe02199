"""Where a search begins, as a value: noise, images, or a mixture of two starts.

A reconstruction may owe more to its start than to the weights. So a start is named like any other setting, an attack
reports which one it had, and one that only the owner of the training data can know is marked as an oracle.
"""

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.core.errors import ExhumeError, Refusal
from exhume.core.text import count_noun
from exhume.data.known_sources import read_source
from exhume.records import AttackerView, Dataset
from exhume.records.record import Record

Pixels = Float[Tensor, "candidate ..."]


class Start(ABC):
    """First guesses for inputs, in pixel units."""

    @abstractmethod
    def draw(self, view: AttackerView, labels: Int[Tensor, " candidate"], generator: torch.Generator) -> Pixels:
        """Return one input for each label, shaped as the view's inputs, on the CPU.

        Raises:
            Refusal: when there are none to give.
        """

    @property
    @abstractmethod
    def size(self) -> int | None:
        """How many inputs there are; None: as many as are wanted."""

    @property
    @abstractmethod
    def is_oracle(self) -> bool:
        """Whether an attacker could not have it: it holds training inputs."""


@dataclass(frozen=True, kw_only=True)
class Noise(Start):
    """Normal noise around what the network sees as zero: the start of somebody who knows nothing."""

    spread: float = 0.2

    @property
    def size(self) -> int | None:
        """As many as are wanted."""
        return None

    @property
    def is_oracle(self) -> bool:
        """Everybody has noise."""
        return False

    def draw(self, view: AttackerView, labels: Int[Tensor, " candidate"], generator: torch.Generator) -> Pixels:
        """Draw independent values."""
        noise = torch.randn(len(labels), view.input_size, generator=generator)
        return view.to_pixels(self.spread * noise.to(view.device)).cpu()


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Images(Record, Start):
    """Images somebody has: of the same kind as the training data, or the training data themselves.

    With labels, each candidate starts from the first unused image of its class; without, in the order given.
    """

    inputs: Pixels
    labels: Int[Tensor, " candidate"] | None = None
    origin: str = "own images"
    """Who they are, for the report."""
    oracle: bool = field(default=False)

    @property
    def size(self) -> int | None:
        """How many images there are."""
        return len(self.inputs)

    @property
    def is_oracle(self) -> bool:
        """Whether they are the training data."""
        return self.oracle

    def __repr__(self) -> str:
        """Name the images by their origin and a digest, since they are too many to write out."""
        digest = hashlib.sha256(self.inputs.float().contiguous().numpy().tobytes()).hexdigest()[:12]
        return f"Images({self.origin!r}, {len(self.inputs)} of them, sha256 {digest})"

    def draw(self, view: AttackerView, labels: Int[Tensor, " candidate"], generator: torch.Generator) -> Pixels:
        """Return the images in the order that the labels ask for."""
        if tuple(self.inputs.shape[1:]) != view.input_shape:
            raise Refusal(
                f"The start holds inputs of shape {tuple(self.inputs.shape[1:])}, the network takes {view.input_shape}."
            )
        return self.inputs[self._order(labels.cpu())].float()

    def _order(self, wanted: Int[Tensor, " candidate"]) -> Int[Tensor, " candidate"]:
        if self.labels is None:
            if len(self.inputs) < len(wanted):
                raise Refusal(
                    f"The start holds {count_noun(len(self.inputs), 'image')}, "
                    f"and {len(wanted)} candidates need one each."
                )
            return torch.arange(len(wanted))
        order = torch.zeros(len(wanted), dtype=torch.long)
        for label in sorted(set(wanted.tolist())):
            have, need = (self.labels == label).nonzero()[:, 0], (wanted == label).nonzero()[:, 0]
            if len(have) < len(need):
                raise Refusal(
                    f"The start holds {count_noun(len(have), 'image')} of class {label}, and {len(need)} are needed."
                )
            order[need] = have[: len(need)]
        return order


@dataclass(frozen=True, kw_only=True)
class Mixture(Start):
    """``share`` of one start and the rest of another, value by value: ``share·first + (1 − share)·second``."""

    first: Start
    second: Start
    share: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 1.0:
            raise ExhumeError(f"The share of a mixture lies between 0 and 1; {self.share} does not.")

    @property
    def size(self) -> int | None:
        """As many as the smaller of the two has."""
        sizes = [start.size for start in (self.first, self.second) if start.size is not None]
        return min(sizes, default=None)

    @property
    def is_oracle(self) -> bool:
        """Whether any of it is."""
        return (self.first.is_oracle and self.share > 0) or (self.second.is_oracle and self.share < 1)

    def draw(self, view: AttackerView, labels: Int[Tensor, " candidate"], generator: torch.Generator) -> Pixels:
        """Draw both and blend them."""
        first, second = (start.draw(view, labels, generator) for start in (self.first, self.second))
        return torch.lerp(second, first, self.share)


def ground_truth(data: Dataset) -> Images:
    """Return the training images: a start for measuring what starts are worth, which no attacker has."""
    return Images(inputs=data.train.inputs, labels=data.train.labels, origin="ground truth", oracle=True)


def another_partition(data: Dataset) -> Images:
    """Return held-out images of the same source: what somebody may well have who was not given the training data."""
    return Images(inputs=data.holdout.inputs, labels=data.holdout.labels, origin="another partition")


def start_from(start: Start | str) -> Start:
    """Return a start by its name: ``noise``, or the path of your own images (``.npz``, ``.csv``, a folder).

    Raises:
        DataError: when there is nothing readable at the path.

    >>> start_from("noise")
    Noise(spread=0.2)
    """
    if isinstance(start, Start):
        return start
    if start == "noise":
        return Noise()
    read = read_source(start)
    everybody = torch.arange(len(read.train))
    return Images(inputs=read.train.take(everybody), labels=read.train.labels, origin=read.name)
