"""Grids of trials: sources, sizes, widths and variants of training, each over several draws."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from exhume.attacks.attack import Attack
from exhume.attacks.weight_difference.weight_difference import WeightDifference
from exhume.optimise.precision import Precision
from exhume.studies.study import StudyRun
from exhume.studies.tasks import first_available
from exhume.studies.trial import Trial
from exhume.training.settings import Schedule

READ_AT = 20
"""Number of points of a curve in ``result.json``; figures show all of them."""
Row = dict[str, Any]
"""The numbers of one trial (:func:`~exhume.studies.metrics.evaluation_numbers`) and which trial it was."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A way to train; figures show one row of panels per variant."""

    name: str
    ten_classes: bool = False
    linearised: bool = False
    stop_loss: float | None = None
    """None: that of the grid."""


STANDARD = Variant(name="standard")
LINEARISED = Variant(name="linearised", linearised=True)
EARLY = Variant(name="stopped at a loss of 0.01", stop_loss=1e-2)
TEN_CLASSES = Variant(name="ten classes", ten_classes=True)
TEN_CLASSES_LINEARISED = Variant(name="ten classes, linearised", ten_classes=True, linearised=True)


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How hard networks are trained and attacked."""

    candidates: float = 2.0
    """Candidates per training image; the paper uses two."""
    steps: int = 800
    precision: Precision = "float32"
    stop_loss: float = 1e-6
    schedule: Schedule = "fast"
    published: bool = False
    """Whether to attack by the paper's recipe: all pixels free, one learning rate for all steps."""

    def attack(self, size: int, *, linearised: bool = False) -> WeightDifference:
        """Return the attack on a network trained on ``size`` images."""
        published = WeightDifference.published()
        # The paper compares trainings; a search that adapts to each network would blur that comparison.
        base = published if self.published else WeightDifference(midway=0.0)
        if linearised:
            # Our sharper gates are more exact where all images are resolved, but resolve fewer images elsewhere.
            base = replace(base, sharpness=published.sharpness)
        return replace(
            base, candidates=max(1, round(self.candidates * size)), steps=self.steps, precision=self.precision
        )

    def trial(
        self,
        source: str,
        size: int,
        width: int,
        seed: int,
        *,
        variant: Variant = STANDARD,
        attack: Attack | None = None,
        pictures: int = 0,
    ) -> Trial:
        """Return a trial of a variant of training; None: with the attack of this effort."""
        return Trial(
            source=source,
            size=size,
            width=width,
            attack=self.attack(size, linearised=variant.linearised) if attack is None else attack,
            ten_classes=variant.ten_classes,
            linearised=variant.linearised,
            stop_loss=self.stop_loss if variant.stop_loss is None else variant.stop_loss,
            schedule=self.schedule,
            seed=seed,
            pictures=pictures,
        )


PAPER = Effort(steps=80_000, stop_loss=1e-10, schedule="paper", published=True)
"""The setting of Loo et al. (2023): a million small steps of training, 80 000 of attack."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Settings of a figure that varies size and width."""

    sources: tuple[str, ...]
    """``"mnist or digits"`` is the first of the two that is present."""
    sizes: tuple[int, ...]
    widths: tuple[int, ...]
    splits: int = 1
    """Number of draws, each with its own seed."""
    effort: Effort = Effort()


def run_grid(grid: Grid, variants: Sequence[Variant], run: StudyRun) -> list[Row]:
    """Run every trial of a grid."""
    run.cells += len(grid.sources) * len(grid.sizes) * len(grid.widths) * len(variants) * grid.splits
    return [
        {"source": source, "variant": variant.name, "size": size, "width": width, "seed": seed}
        | grid.effort.trial(source, size, width, seed, variant=variant).run(run)
        for source in map(first_available, grid.sources)
        for size in grid.sizes
        for seed in range(run.seed, run.seed + grid.splits)
        for variant in variants
        for width in grid.widths
    ]


def where(rows: Sequence[Row], **values: Any) -> list[Row]:
    """Return the rows that have these values.

    >>> where([{"size": 10, "width": 8}, {"size": 20, "width": 8}], width=8, size=20)
    [{'size': 20, 'width': 8}]
    """
    return [row for row in rows if all(row[key] == value for key, value in values.items())]


def distinct(rows: Sequence[Row], key: str) -> list[Any]:
    """Return the distinct values of a key, in order of appearance."""
    return list(dict.fromkeys(row[key] for row in rows))


def share(rows: Sequence[Row], key: str = "good") -> float:
    """Return the share of training images counted under ``key``.

    >>> share([{"size": 10, "good": 5}, {"size": 30, "good": 5}])
    0.25
    """
    return sum(int(row[key]) for row in rows) / sum(int(row["size"]) for row in rows)


def mean_error(row: Row) -> float:
    """Return the mean of the reconstruction curve, as the paper measures quality."""
    return float(row["curve"].mean())


def mean_curve(rows: Sequence[Row], key: str = "curve") -> Tensor:
    """Return the mean of curves over draws."""
    return torch.stack([row[key] for row in rows]).mean(0)


def grid_numbers(rows: Sequence[Row]) -> list[Row]:
    """Return rows for ``result.json``, with curves at :data:`READ_AT` ranks and to four digits; cells hold all."""
    return [row | _thin_curves(row) | {"mean_error": mean_error(row)} for row in rows]


def _thin_curves(row: Row) -> Row:
    ranks = torch.linspace(1, len(row["curve"]), min(len(row["curve"]), READ_AT)).round().long()
    read = {key: row[key][ranks - 1] for key in ("curve", "null_curve") if len(row[key]) == len(row["curve"])}
    return {"curve_ranks": ranks.tolist()} | {
        key: [float(f"{value:.4g}") for value in values.tolist()] for key, values in read.items()
    }


def grid_table(rows: Sequence[Row]) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    """Return header and rows of a table: good images by source, variant and size, one column per width."""
    widths = distinct(rows, "width")
    head = ("data", "training", "images", *(f"good, width {width}" for width in widths), "held out")
    lines = []
    for source in distinct(rows, "source"):
        for variant in distinct(rows, "variant"):
            for size in distinct(rows, "size"):
                cells = where(rows, source=source, variant=variant, size=size)
                if not cells:
                    continue
                good = [f"{_mean(where(cells, width=w), 'good'):.1f}" for w in widths]
                lines.append((source, variant, str(size), *good, f"{_mean(cells, 'null_good'):.1f}"))
    return head, lines


def attack_table(rows: Sequence[Row]) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    """Return header and rows of a table with one line per network and attack."""
    counts = {
        "good": "good", "fine": "fine", "exact": "exact", "null_good": "held out, good", "certified": "certified",
        "false_certificates": "false",
    }  # fmt: skip
    lines = [
        (
            row["source"], str(row["size"]), str(row["width"]), row["variant"], *(str(row[key]) for key in counts),
            f"{row['attack_seconds']:.1f}",
        )
        for row in rows
    ]  # fmt: skip
    return ("data", "images", "width", "attack", *counts.values(), "seconds"), lines


def _mean(rows: Sequence[Row], key: str) -> float:
    return statistics.fmean(row[key] for row in rows) if rows else float("nan")
