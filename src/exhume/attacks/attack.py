"""The interface of every attack: frozen settings, one ``run``, one result."""

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

import torch

from exhume.core.devices import resolve_device
from exhume.core.progress import Progress, no_progress
from exhume.core.run_context import RunContext
from exhume.records import AttackerView, Reconstruction, count_outputs


@dataclass(frozen=True, kw_only=True)
class Attack(ABC):
    """Settings of an attack, whose ``repr`` goes into every report.

    A subclass implements :meth:`check` and :meth:`recover`, and overrides nothing else.
    """

    @abstractmethod
    def check(self, view: AttackerView) -> None:
        """Raise :class:`~exhume.core.errors.Refusal` with the reason when the attack does not apply to ``view``."""

    @abstractmethod
    def recover(self, view: AttackerView, context: RunContext) -> Reconstruction:
        """Recover training inputs from a view that is already on its device."""

    @final
    def run(
        self,
        view: AttackerView,
        *,
        seed: int = 0,
        device: str | torch.device = "auto",
        progress: Progress = no_progress,
        checkpoint: Path | str | None = None,
        seconds: float | None = None,
        keep_partial: bool = False,
    ) -> Reconstruction:
        """Attack ``view`` and return the reconstruction.

        Args:
            view: the attacker's view.
            seed: determines every random choice.
            device: ``auto`` takes a GPU when there is one.
            progress: a callback for progress reports.
            checkpoint: the file that long attacks save their state to and continue from.
            seconds: the time limit; the attack stops at its first progress report after it. What a search found by then
                may be read out and judged in a second and a quarter of the limit more. None: no limit.
            keep_partial: return what a search has found when the time is spent, instead of raising; its ``diagnostics``
                then hold ``stopped_at`` (the share of the stage that was done), ``seconds_needed`` (an estimate up to
                the end of this stage) and ``stages_left`` (how many follow).

        Returns:
            A :class:`~exhume.records.Reconstruction` on the CPU, with inputs in the pixel range of the view.

        Raises:
            ExhumeError: when the model does not take inputs of the view's shape, or does not return a tensor.
            Refusal: when the attack does not apply to this view; the message says why.
            OutOfTime: when ``seconds`` have passed; with a checkpoint, the same call continues from there.
        """
        count_outputs(view.model, view.input_shape)  # refuses models that cannot be attacked
        self.check(view)
        context = RunContext.start(
            seed=seed, progress=progress, checkpoint=checkpoint, seconds=seconds, wraps_up=keep_partial
        )
        started = time.perf_counter()
        found = self.recover(view.to(resolve_device(device)), context)
        took = time.perf_counter() - started
        if context.cut:
            done, later = next(iter(context.cut.values())), len(context.cut) - 1
            needed = {} if done == 0 else {"seconds_needed": took / done}
            cut = {"stopped_at": done, "stages_left": later, **needed}
            found = replace(found, diagnostics={**found.diagnostics, **cut})
        return replace(found.cpu(), attack=repr(self), seed=seed, seconds=took)
