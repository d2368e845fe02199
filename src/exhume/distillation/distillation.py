"""The interface of every distillation: frozen settings with one method that makes examples."""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from pydantic import PositiveInt
from torch import Tensor

from exhume.core.run_context import RunContext
from exhume.core.settings import settings
from exhume.records import Dataset, Split
from exhume.training.prediction import classify


@settings
class Distillation(ABC):
    """Settings of a distillation; :func:`exhume.distil` runs it."""

    size: PositiveInt = 20
    """Number of examples to make."""

    @abstractmethod
    def distil(self, data: Dataset, context: RunContext, device: torch.device) -> Split:
        """Return distilled examples of the training split, in pixel units."""


def make_split(
    data: Dataset,
    inputs: Float[Tensor, "distilled value"],
    targets: Float[Tensor, "distilled output"],
    *,
    soft: bool,
) -> Split:
    """Return flat network inputs and their targets as examples; ``soft`` keeps the targets beside the labels."""
    shaped = inputs.detach().cpu().float().reshape(len(inputs), *data.input_shape)
    pixels = shaped if data.offset is None else shaped + data.offset.to(shaped)
    outputs = targets.detach().cpu().float()
    return Split(inputs=pixels, labels=classify(outputs), targets=outputs if soft else None)
