"""Run an attack several times from different starts, and choose by what the attacker has."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol, get_args, runtime_checkable

import torch
from torch import Tensor

from exhume.attacks.attack import Attack
from exhume.core.devices import resolve_device
from exhume.core.errors import ExhumeError
from exhume.core.progress import Progress, no_progress
from exhume.core.run_context import RunContext
from exhume.models.structure import dense_stack
from exhume.records import AttackerView, Outcome, Reconstruction

Keep = Literal["best", "all"]


@runtime_checkable
class SideBySide(Protocol):
    """An attack that can run many times in one program."""

    def check(self, view: AttackerView) -> None:
        """Raise :class:`~exhume.core.errors.Refusal` when the attack does not apply."""
        ...

    def recover_together(
        self, views: Sequence[AttackerView], generators: Sequence[torch.Generator], context: RunContext
    ) -> list[Reconstruction]:
        """Recover from every view, each with a generator of its own; progress and checkpoint are shared."""
        ...


@dataclass(frozen=True)
class Restarted(Attack):
    """``attack``, ``times`` over; keeps the run that ends with the lowest objective, or pools ``all`` of them.

    A run that proves every training input ends the series, and is kept; of an attack that has no objective, the run
    that proves most. The choice never looks at a training input: an
    attacker has none. With a checkpoint, runs that ended are not repeated.

    >>> from exhume.attacks.weight_difference import WeightDifference
    >>> Restarted(WeightDifference(steps=100), times=5).times
    5
    """

    attack: Attack
    times: int = field(default=3, kw_only=True)
    keep: Keep = field(default="best", kw_only=True)
    at_once: int | None = field(default=None, kw_only=True)
    """How many runs share one program, where the attack can do that; None: all of them on a GPU, which one run alone
    does not fill, and one at a time on a CPU."""

    def __post_init__(self) -> None:
        if self.keep not in get_args(Keep):
            raise ExhumeError(f"There is no keep {self.keep!r}; choose from {', '.join(get_args(Keep))}.")
        if self.times < 1:
            raise ExhumeError(f"Restarted runs an attack at least once, not {self.times} times.")
        if self.at_once is not None and self.at_once < 1:
            raise ExhumeError(f"Restarted runs at least one attack at a time, not {self.at_once}.")

    def check(self, view: AttackerView) -> None:
        """Refuse what the attack refuses."""
        self.attack.check(view)

    def recover(self, view: AttackerView, context: RunContext) -> Reconstruction:
        """Run the attack from independent starts until all are done, or one has proven everything."""
        seeds = torch.randint(2**62, (self.times,), generator=context.generator).tolist()
        groups = _groups(seeds, self._at_once(view))
        parts = [
            context.part(str(number + 1)).with_progress(_part(context.progress, number, len(groups)))
            for number in range(len(groups))
        ]
        found: list[Reconstruction] = []
        for group, part in zip(groups, parts, strict=True):
            found += self._run(view, group, part)
            if any(map(_proves_all, found)):  # nothing is left to look for
                break
        for part in parts:
            part.discard_checkpoint()
        ends = [-math.inf if _proves_all(one) else _objective(one) for one in found]
        best = min(range(len(found)), key=lambda run: (ends[run], -int(found[run].certified.sum())))
        kept = found[best] if self.keep == "best" else _pooled(found, found[best])
        restarts = {"objectives": [end if math.isfinite(end) else None for end in ends], "best": best}
        return replace(kept, diagnostics={**kept.diagnostics, "restarts": restarts})

    def _at_once(self, view: AttackerView) -> int:
        if not isinstance(self.attack, SideBySide) or dense_stack(view.model) is None:
            return 1
        if self.at_once is not None:
            return self.at_once
        return self.times if next(iter(view.final.values())).is_cuda else 1

    def _run(self, view: AttackerView, seeds: Sequence[int], context: RunContext) -> list[Reconstruction]:
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        if len(seeds) == 1:
            return [self.attack.recover(view, replace(context, generator=generators[0]))]
        assert isinstance(self.attack, SideBySide)
        return self.attack.recover_together([view] * len(seeds), generators, context)


def run_together(
    attack: Attack | SideBySide,
    views: Sequence[AttackerView],
    *,
    seeds: Sequence[int],
    device: str | torch.device = "auto",
    progress: Progress = no_progress,
    checkpoint: Path | str | None = None,
) -> list[Reconstruction]:
    """Attack many networks of one shape in one program, each as ``attack.run`` would.

    Args:
        attack: one that can, such as :class:`~exhume.attacks.weight_difference.WeightDifference`.
        views: dense networks of one shape, with as many training inputs each.
        seeds: one a view.
        device: ``auto`` takes a GPU when there is one.
        progress: hears where all of them stand.
        checkpoint: a file that the state of all is saved to, and continued from.

    Returns:
        One reconstruction a view, on the CPU; the seconds of each are those of all.

    Raises:
        ExhumeError: when the attack cannot, or the networks differ in shape.
        Refusal: when the attack does not apply to one of the views.
    """
    if not isinstance(attack, SideBySide):
        raise ExhumeError(f"{type(attack).__name__} cannot attack networks side by side; run it on one at a time.")
    if not views or len(seeds) != len(views):
        raise ExhumeError(f"Every network takes one seed; there are {len(views)} networks and {len(seeds)} seeds.")
    for view in views:
        attack.check(view)
    _check_alike(views)
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


def _check_alike(views: Sequence[AttackerView]) -> None:
    """Raise :class:`ExhumeError` where networks cannot stand side by side, naming the first thing they differ in."""
    first = views[0]
    for number, other in enumerate(views[1:], start=2):
        if first.linearised != other.linearised:
            raise ExhumeError("Networks fit side by side when all of them are linearised or none; run these apart.")
        for name in dict.fromkeys([*first.final, *other.final]):
            one, two = (tuple(ends[name].shape) if name in ends else "absent" for ends in (first.final, other.final))
            if one != two:
                raise ExhumeError(
                    f"Only networks of one shape fit side by side; {name} is {one} in the first and {two} in number "
                    f"{number}."
                )


def _groups(seeds: list[int], size: int) -> list[list[int]]:
    return [seeds[first : first + size] for first in range(0, len(seeds), size)]


def _proves_all(found: Reconstruction) -> bool:
    return found.outcome is Outcome.CERTIFIED


def _objective(found: Reconstruction) -> float:
    """Return the last value of the objective, and infinity where there is none or it is not a number."""
    if found.history is None or len(found.history) == 0:
        return math.inf
    end = float(found.history[-1])
    return end if math.isfinite(end) else math.inf


def _pooled(found: list[Reconstruction], best: Reconstruction) -> Reconstruction:
    def joined(name: str) -> Tensor | None:
        parts: list[Tensor | None] = [getattr(one, name) for one in found]
        present = [part for part in parts if part is not None]
        return torch.cat(present) if len(present) == len(parts) else None

    names = ("inputs", "certified", "confidence", "duals", "p_values")
    return replace(best, **{name: joined(name) for name in names})  # type: ignore[arg-type]


def _part(progress: Progress, number: int, times: int) -> Progress:
    def heard(stage: str, done: int, total: int, note: str = "") -> None:
        progress(stage, number * total + done, times * total, f"run {number + 1} of {times}, {note}".rstrip(", "))

    return heard
