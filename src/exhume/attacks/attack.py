"""The interface of every attack: frozen settings, one ``run``, one result."""

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

import torch

from exhume.core.devices import resolve_device
from exhume.core.progress import Progress, silent
from exhume.records import AttackerView, Reconstruction


@dataclass(frozen=True, kw_only=True)
class Attack(ABC):
    """An attack is its settings; ``repr(attack)`` goes into every report.

    Abstract or final: a subclass fills in :meth:`check` and :meth:`recover` and overrides nothing else.
    """

    @abstractmethod
    def check(self, view: AttackerView) -> None:
        """Raise :class:`~exhume.core.errors.Refusal` with the reason when the attack does not apply to ``view``."""

    @abstractmethod
    def recover(
        self, view: AttackerView, *, generator: torch.Generator, progress: Progress, checkpoint: Path | None
    ) -> Reconstruction:
        """Recover training inputs from a view already on its device; ``generator`` is the only randomness."""

    @final
    def run(
        self,
        view: AttackerView,
        *,
        seed: int = 0,
        device: str | torch.device = "auto",
        progress: Progress = silent,
        checkpoint: Path | str | None = None,
    ) -> Reconstruction:
        """Attack ``view`` and return what was found.

        Args:
            view: what the attacker holds.
            seed: fixes every random choice.
            device: ``auto`` takes a GPU when there is one.
            progress: hears where the attack stands.
            checkpoint: a file that long attacks save their state to, and continue from when it is there.

        Returns:
            A :class:`~exhume.records.Reconstruction` on the CPU, with inputs in the pixel range of the view.

        Raises:
            Refusal: when the attack does not apply to this view; the message says why.
        """
        self.check(view)
        generator = torch.Generator().manual_seed(seed)
        started = time.perf_counter()
        found = self.recover(
            view.to(resolve_device(device)),
            generator=generator,
            progress=progress,
            checkpoint=None if checkpoint is None else Path(checkpoint),
        )
        return replace(found.cpu(), attack=repr(self), seed=seed, seconds=time.perf_counter() - started)
