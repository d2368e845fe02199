"""Distillation: make a small data set to train on instead of a large one; how much it hides must be measured."""

from dataclasses import replace
from pathlib import Path

import torch

from exhume.core.devices import resolve_device
from exhume.core.errors import ExhumeError
from exhume.core.progress import Progress, no_progress
from exhume.core.run_context import RunContext
from exhume.distillation.distillation import Distillation
from exhume.distillation.kip import KIP, RKIP
from exhume.distillation.rkip_finite import RKIPFinite
from exhume.records import Dataset

__all__ = ["KIP", "RKIP", "Distillation", "RKIPFinite", "distil"]


def distil(
    data: Dataset,
    method: Distillation = RKIP(),  # noqa: B008 - frozen
    *,
    seed: int = 0,
    device: str | torch.device = "auto",
    progress: Progress = no_progress,
    checkpoint: Path | str | None = None,
) -> Dataset:
    """Distil the training split of ``data``, so that ``train(distil(data))`` never shows a network the data itself.

    Args:
        data: the data set to distil.
        method: the distillation and its settings.
        seed: fixes every random choice.
        device: ``auto`` uses a GPU if there is one.
        progress: progress callback.
        checkpoint: a file to save the state to, and to continue from if it exists.

    Returns:
        The same data set with the distilled examples as training split; held-out and test examples stay.

    Raises:
        ExhumeError: when there are no training examples, or when the method cannot distil them.
    """
    if len(data.train) == 0:
        raise ExhumeError(f"The data set {data.name} has no training examples.")
    context = RunContext.start(seed=seed, progress=progress, checkpoint=checkpoint)
    split = method.distil(data, context, resolve_device(device))
    return replace(data, name=f"{data.name} distilled to {len(split)} by {type(method).__name__}", train=split)
