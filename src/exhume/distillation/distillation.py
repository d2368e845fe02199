"""The interface of every distillation: frozen settings, one ``run``, and a data set like any other."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.core.devices import resolve_device
from exhume.core.errors import ExhumeError
from exhume.core.progress import Progress, no_progress
from exhume.core.run_context import RunContext
from exhume.records import Dataset, Split
from exhume.training.prediction import classify


@dataclass(frozen=True, kw_only=True)
class Distillation(ABC):
    """A distillation is its settings. Abstract or final: a subclass fills in :meth:`distilled`."""

    size: int = 20
    """How many examples to make."""

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ExhumeError(f"A distilled set needs at least one example, not {self.size}.")

    @abstractmethod
    def distilled(self, data: Dataset, context: RunContext, device: torch.device) -> Split:
        """Return the distilled examples in pixel units."""

    @final
    def run(
        self,
        data: Dataset,
        *,
        seed: int = 0,
        device: str | torch.device = "auto",
        progress: Progress = no_progress,
        checkpoint: Path | str | None = None,
    ) -> Dataset:
        """Distil the training split of ``data``.

        Args:
            data: what to distil.
            seed: fixes every random choice.
            device: ``auto`` takes a GPU when there is one.
            progress: hears where the work stands.
            checkpoint: a file to save the state to, and to continue from when it is there.

        Returns:
            The same data set with the distilled examples to train on; held-out and test examples stay.
        """
        if len(data.train) == 0:
            raise ExhumeError(f"The data set {data.name} has no training examples.")
        split = self.distilled(
            data, RunContext.start(seed=seed, progress=progress, checkpoint=checkpoint), resolve_device(device)
        )
        return replace(data, name=f"{data.name} distilled to {len(split)} by {type(self).__name__}", train=split)


def split_of(
    data: Dataset,
    inputs: Float[Tensor, "distilled value"],
    targets: Float[Tensor, "distilled output"],
    *,
    soft: bool,
) -> Split:
    """Return flat network inputs and their targets as examples; ``soft`` keeps targets that are no plain labels."""
    shaped = inputs.detach().cpu().float().reshape(len(inputs), *data.input_shape)
    pixels = shaped if data.offset is None else shaped + data.offset.to(shaped)
    said = targets.detach().cpu().float()
    return Split(inputs=pixels, labels=classify(said), targets=said if soft else None)
