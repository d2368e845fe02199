"""Run an attack several times from different starts, and keep the run that explains most."""

import math
import time
from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import torch
from pydantic import InstanceOf, PositiveInt
from torch import Tensor

from exhume.attacks.attack import Attack
from exhume.core.devices import resolve_device
from exhume.core.errors import ExhumeError
from exhume.core.progress import Progress, no_progress
from exhume.core.run_context import RunContext
from exhume.core.settings import settings
from exhume.models.structure import dense_stack
from exhume.records import AttackerView, Outcome, Reconstruction

Keep = Literal["best", "all"]


@runtime_checkable
class RunsTogether(Protocol):
    """An attack whose runs can share one program."""

    def check(self, view: AttackerView) -> None:
        """Raise :class:`~exhume.core.errors.Refusal` when the attack does not apply."""
        ...

    def recover_together(
        self, views: Sequence[AttackerView], generators: Sequence[torch.Generator], context: RunContext
    ) -> list[Reconstruction]:
        """Recover from every view, each with its own generator; all runs share progress and checkpoint."""
        ...


@settings
class Restarted(Attack):
    """Run ``attack`` several ``times``, and keep the run with the lowest objective, or pool ``all`` runs.

    A run that proves every training input ends the series and is kept. Of an attack without an objective, the run that
    proves most is kept. The choice uses no training input, since an attacker has none. With a checkpoint, finished runs
    are not repeated.

    >>> from exhume.attacks.weight_difference import WeightDifference
    >>> Restarted(WeightDifference(steps=100), times=5).times
    5
    """

    attack: InstanceOf[Attack] = field(kw_only=False)
    times: PositiveInt = 3
    keep: Keep = "best"
    at_once: PositiveInt | None = None
    """Number of runs that share one program, where the attack supports it; None: all of them on a GPU, which one run
    alone does not fill, and one at a time on a CPU."""

    def check(self, view: AttackerView) -> None:
        """Refuse the views that the attack refuses."""
        self.attack.check(view)

    def recover(self, view: AttackerView, context: RunContext) -> Reconstruction:
        """Run the attack from independent starts, until one run has proven everything."""
        seeds = torch.randint(2**62, (self.times,), generator=context.generator).tolist()
        groups = _split(seeds, self._runs_at_once(view))
        parts = [
            replace(context.part(str(number + 1)), progress=_report_part(context.progress, number, len(groups)))
            for number in range(len(groups))
        ]
        found: list[Reconstruction] = []
        for group, part in zip(groups, parts, strict=True):
            found += self._run(view, group, part)
            if any(map(_proves_all, found)):
                break
        for part in parts:
            part.discard_checkpoint()
        ends = [-math.inf if _proves_all(one) else _objective(one) for one in found]
        best = min(range(len(found)), key=lambda run: (ends[run], -int(found[run].certified.sum())))
        kept = found[best] if self.keep == "best" else _pool(found, found[best])
        restarts = {"objectives": [end if math.isfinite(end) else None for end in ends], "best": best}
        return replace(kept, diagnostics={**kept.diagnostics, "restarts": restarts})

    def _runs_at_once(self, view: AttackerView) -> int:
        if not isinstance(self.attack, RunsTogether) or dense_stack(view.model) is None:
            return 1
        if self.at_once is not None:
            return self.at_once
        return self.times if next(iter(view.final.values())).is_cuda else 1

    def _run(self, view: AttackerView, seeds: Sequence[int], context: RunContext) -> list[Reconstruction]:
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        if len(seeds) == 1:
            return [self.attack.recover(view, replace(context, generator=generators[0]))]
        assert isinstance(self.attack, RunsTogether)
        return self.attack.recover_together([view] * len(seeds), generators, context)


def run_together(
    attack: Attack | RunsTogether,
    views: Sequence[AttackerView],
    *,
    seeds: Sequence[int],
    device: str | torch.device = "auto",
    progress: Progress = no_progress,
    checkpoint: Path | str | None = None,
) -> list[Reconstruction]:
    """Attack many networks of one shape in one program, with the results of ``attack.run`` on each.

    Args:
        attack: one that supports it, such as :class:`~exhume.attacks.weight_difference.WeightDifference`.
        views: dense networks of one shape and one training set size.
        seeds: one per view.
        device: ``auto`` takes a GPU when there is one.
        progress: a callback for progress reports about all of them.
        checkpoint: the file that their state is saved to and continued from.

    Returns:
        One reconstruction per view, on the CPU; ``seconds`` is the time of all together.

    Raises:
        ExhumeError: when the attack does not support it, or the networks differ in shape.
        Refusal: when the attack does not apply to one of the views.
    """
    if not isinstance(attack, RunsTogether):
        raise ExhumeError(f"{type(attack).__name__} cannot attack networks side by side; run it on one at a time.")
    if not views or len(seeds) != len(views):
        raise ExhumeError(f"Every network needs one seed; there are {len(views)} networks and {len(seeds)} seeds.")
    for view in views:
        attack.check(view)
    _check_same_shape(views)
    place = resolve_device(device)
    moved = {id(view): view.to(place) for view in views}
    started = time.perf_counter()
    found = attack.recover_together(
        [moved[id(view)] for view in views],
        [torch.Generator().manual_seed(seed) for seed in seeds],
        RunContext.start(progress=progress, checkpoint=checkpoint),
    )
    seconds = time.perf_counter() - started
    return [
        replace(one.cpu(), attack=repr(attack), seed=seed, seconds=seconds)
        for one, seed in zip(found, seeds, strict=True)
    ]


def _check_same_shape(views: Sequence[AttackerView]) -> None:
    """Raise :class:`ExhumeError` with the first difference that keeps networks from running side by side."""
    first = views[0]
    for number, other in enumerate(views[1:], start=2):
        if first.linearised != other.linearised:
            raise ExhumeError("Networks fit side by side if all of them are linearised or none is; run these apart.")
        for name in dict.fromkeys([*first.final, *other.final]):
            one, two = (tuple(w[name].shape) if name in w else "absent" for w in (first.final, other.final))
            if one != two:
                raise ExhumeError(
                    f"Only networks of one shape fit side by side; {name} is {one} in the first and {two} in number "
                    f"{number}."
                )


def _split(seeds: list[int], size: int) -> list[list[int]]:
    return [seeds[first : first + size] for first in range(0, len(seeds), size)]


def _proves_all(found: Reconstruction) -> bool:
    return found.outcome is Outcome.CERTIFIED


def _objective(found: Reconstruction) -> float:
    """Return the last value of the objective, or infinity where there is no finite one."""
    if found.history is None or len(found.history) == 0:
        return math.inf
    end = float(found.history[-1])
    return end if math.isfinite(end) else math.inf


def _pool(found: list[Reconstruction], best: Reconstruction) -> Reconstruction:
    def joined(name: str) -> Tensor | None:
        parts: list[Tensor | None] = [getattr(one, name) for one in found]
        present = [part for part in parts if part is not None]
        return torch.cat(present) if len(present) == len(parts) else None

    names = ("inputs", "certified", "confidence", "duals", "p_values")
    return replace(best, **{name: joined(name) for name in names})  # type: ignore[arg-type]


def _report_part(progress: Progress, number: int, times: int) -> Progress:
    def report(stage: str, done: int, total: int, note: str = "") -> None:
        progress(stage, number * total + done, times * total, f"run {number + 1} of {times}, {note}".rstrip(", "))

    return report
