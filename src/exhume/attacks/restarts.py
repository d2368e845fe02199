"""Run an attack several times from different starts, and choose by what the attacker has."""

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor

from exhume.attacks.attack import Attack
from exhume.errors import ExhumeError
from exhume.models.architecture import choose
from exhume.progress import Progress
from exhume.records import AttackerView, Reconstruction

Keep = Literal["best", "all"]


@dataclass(frozen=True)
class Restarted(Attack):
    """``attack``, ``times`` over; keeps the run that ends with the lowest objective, or pools ``all`` of them.

    The choice never looks at a training input: an attacker has none. With a checkpoint, runs that ended are not
    repeated.

    >>> from exhume.attacks.weight_difference import WeightDifference
    >>> Restarted(WeightDifference(steps=100), times=5).times
    5
    """

    attack: Attack
    times: int = field(default=3, kw_only=True)
    keep: Keep = field(default="best", kw_only=True)

    def __post_init__(self) -> None:
        choose("keep", self.keep, get_args(Keep))
        if self.times < 1:
            raise ExhumeError(f"Restarted runs an attack at least once, not {self.times} times.")

    def check(self, view: AttackerView) -> None:
        """Refuse what the attack refuses."""
        self.attack.check(view)

    def recover(
        self, view: AttackerView, *, generator: torch.Generator, progress: Progress, checkpoint: Path | None
    ) -> Reconstruction:
        """Run the attack from independent starts, one after the other."""
        seeds = torch.randint(2**62, (self.times,), generator=generator).tolist()
        files = [None if checkpoint is None else _numbered(checkpoint, number) for number in range(self.times)]
        found = [
            self.attack.recover(
                view,
                generator=torch.Generator().manual_seed(seed),
                progress=_part(progress, number, self.times),
                checkpoint=file,
            )
            for number, (seed, file) in enumerate(zip(seeds, files, strict=True))
        ]
        for file in files:
            if file is not None:
                file.unlink(missing_ok=True)
        ends = [_objective(one) for one in found]
        if self.keep == "best" and all(math.isinf(end) for end in ends):
            raise ExhumeError(
                f"Restarted picks by the objective, and no run of {self.attack!r} has one; use keep='all'."
            )
        best = min(range(self.times), key=ends.__getitem__)
        kept = found[best] if self.keep == "best" else _pooled(found, found[best])
        restarts = {"objectives": [end if math.isfinite(end) else None for end in ends], "best": best}
        return replace(kept, diagnostics={**kept.diagnostics, "restarts": restarts})


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


def _numbered(file: Path, number: int) -> Path:
    return file.with_name(f"{file.stem}-{number + 1}{file.suffix}")


def _part(progress: Progress, number: int, times: int) -> Progress:
    def heard(stage: str, done: int, total: int, note: str = "") -> None:
        progress(stage, number * total + done, times * total, f"run {number + 1} of {times}, {note}".rstrip(", "))

    return heard
