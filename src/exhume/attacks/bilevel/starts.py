"""Starts of a search: noise, images, or a mixture of two starts.

A reconstruction may depend more on its start than on the weights. So a start is a setting like any other, an attack
reports the start it had, and a start that only the owner of the training data can know is marked as an oracle.
"""

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from exhume.core.errors import Refusal
from exhume.core.settings import settings
from exhume.core.text import count_noun
from exhume.data.known_sources import read_source
from exhume.records import AttackerView, Dataset
from exhume.records.record import Record

Pixels = Float[Tensor, "candidate ..."]


class Start(ABC):
    """Initial candidates, in pixel units."""

    @abstractmethod
    def draw(self, view: AttackerView, labels: Int[Tensor, " candidate"], generator: torch.Generator) -> Pixels:
        """Return one input per label, in the shape of the view's inputs, on the CPU.

        Raises:
            Refusal: when the start has too few inputs, or inputs of another shape.
        """

    @property
    @abstractmethod
    def size(self) -> int | None:
        """Number of inputs of the start; None: any number."""

    @property
    @abstractmethod
    def is_oracle(self) -> bool:
        """Whether the start contains training inputs, which no attacker has."""


@settings
class Noise(Start):
    """Normal noise around a zero network input: the start of an attacker without images."""

    init_std: Annotated[float, Field(ge=0)] = 0.2
    """Standard deviation, in network units."""

    @property
    def size(self) -> int | None:
        """None: any number."""
        return None

    @property
    def is_oracle(self) -> bool:
        """False: anybody can draw noise."""
        return False

    def draw(self, view: AttackerView, labels: Int[Tensor, " candidate"], generator: torch.Generator) -> Pixels:
        """Draw independent values."""
        noise = torch.randn(len(labels), view.input_size, generator=generator)
        return view.to_pixels(self.init_std * noise.to(view.device)).cpu()


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Images(Record, Start):
    """Given images: of the same kind as the training data, or the training data themselves.

    With labels, each candidate starts from the first unused image of its class; without, images keep their order.
    """

    inputs: Pixels
    labels: Int[Tensor, " candidate"] | None = None
    origin: str = "own images"
    """Source of the images, for the report."""
    oracle: bool = False
    """Whether they are the training data."""

    @property
    def size(self) -> int | None:
        """Number of images."""
        return len(self.inputs)

    @property
    def is_oracle(self) -> bool:
        """Whether they are the training data."""
        return self.oracle

    def __repr__(self) -> str:
        """Identify the images by their origin and a digest."""
        digest = hashlib.sha256(self.inputs.float().contiguous().numpy().tobytes()).hexdigest()[:12]
        return f"Images({self.origin!r}, {len(self.inputs)} of them, sha256 {digest})"

    def draw(self, view: AttackerView, labels: Int[Tensor, " candidate"], generator: torch.Generator) -> Pixels:
        """Return one image per label, in the order of the labels."""
        if tuple(self.inputs.shape[1:]) != view.input_shape:
            raise Refusal(
                f"The start holds inputs of shape {tuple(self.inputs.shape[1:])}, the network takes {view.input_shape}."
            )
        return self.inputs[self._choose(labels.cpu())].float()

    def _choose(self, wanted: Int[Tensor, " candidate"]) -> Int[Tensor, " candidate"]:
        if self.labels is None:
            if len(self.inputs) < len(wanted):
                raise Refusal(
                    f"The start holds {count_noun(len(self.inputs), 'image')}, "
                    f"and {len(wanted)} candidates need one each."
                )
            return torch.arange(len(wanted))
        chosen = torch.zeros(len(wanted), dtype=torch.long)
        for label in sorted(set(wanted.tolist())):
            available, needed = (self.labels == label).nonzero()[:, 0], (wanted == label).nonzero()[:, 0]
            if len(available) < len(needed):
                raise Refusal(
                    f"The start holds {count_noun(len(available), 'image')} of class {label}, "
                    f"and {len(needed)} are needed."
                )
            chosen[needed] = available[: len(needed)]
        return chosen


@settings
class Mixture(Start):
    """A blend of two starts, value by value: ``share·first + (1 − share)·second``."""

    first: Start
    second: Start
    share: Annotated[float, Field(ge=0, le=1)]

    @property
    def size(self) -> int | None:
        """Number of inputs of the smaller start."""
        sizes = [start.size for start in (self.first, self.second) if start.size is not None]
        return min(sizes, default=None)

    @property
    def is_oracle(self) -> bool:
        """Whether a start with a positive share is an oracle."""
        return (self.first.is_oracle and self.share > 0) or (self.second.is_oracle and self.share < 1)

    def draw(self, view: AttackerView, labels: Int[Tensor, " candidate"], generator: torch.Generator) -> Pixels:
        """Draw both and blend them."""
        first, second = (start.draw(view, labels, generator) for start in (self.first, self.second))
        return torch.lerp(second, first, self.share)


def ground_truth(data: Dataset) -> Images:
    """Return the training images as a start: an oracle, for measuring the influence of starts."""
    return Images(inputs=data.train.inputs, labels=data.train.labels, origin="ground truth", oracle=True)


def another_partition(data: Dataset) -> Images:
    """Return held-out images of the same source: images that an attacker may well have."""
    return Images(inputs=data.holdout.inputs, labels=data.holdout.labels, origin="another partition")


def start_from(start: Start | str) -> Start:
    """Return the start with this name: ``noise``, or the path of images (``.npz``, ``.csv``, a folder).

    Raises:
        DataError: when the path holds no readable images.

    >>> start_from("noise")
    Noise(init_std=0.2)
    """
    if isinstance(start, Start):
        return start
    if start == "noise":
        return Noise()
    read = read_source(start)
    return Images(inputs=read.train.take(torch.arange(len(read.train))), labels=read.train.labels, origin=read.name)
