"""Distillation: a small data set to train on in place of a large one, as a defence that must be measured."""

from pathlib import Path

import torch

from exhume.core.progress import Progress, no_progress
from exhume.distillation.distillation import Distillation
from exhume.distillation.finite import RKIPFinite
from exhume.distillation.kernel import KIP, RKIP
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

    See :meth:`Distillation.run`, which this calls.
    """
    return method.run(data, seed=seed, device=device, progress=progress, checkpoint=checkpoint)
