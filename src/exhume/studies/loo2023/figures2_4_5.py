"""Figures 2, 4 and 5 of Loo et al. (2023), reconstruction curves; and S3, S5 and S6, the same at every size."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from exhume.studies.catalogue import Preset
from exhume.studies.curve_panels import curve_panels
from exhume.studies.grid import (
    EARLY,
    LINEARISED,
    PAPER,
    STANDARD,
    TEN_CLASSES,
    TEN_CLASSES_LINEARISED,
    Effort,
    Grid,
    Row,
    Variant,
    distinct,
    grid_numbers,
    grid_table,
    run_grid,
    where,
)
from exhume.studies.loo2023.observations import (
    Observation,
    describe_observations,
    linearised_is_better,
    more_classes_are_better,
    smaller_is_easier,
    unaffected_by,
    wider_resolves_more,
)
from exhume.studies.study import Study, StudyResult, StudyRun

Observe = Callable[[Sequence[Row]], Sequence[Observation]]
"""Check the statements of the paper on the rows of one source."""

WIDTHS = (256, 512, 1024, 2048, 4096)
SIZES = (20, 50, 100, 150, 200, 300, 400, 500)
THRESHOLD = (("mnist", STANDARD.name, 200, 1024), 80)
"""The one threshold stated in the paper: a network, and the number of images after which the quality falls."""


def measure_curves(grid: Grid, run: StudyRun, variants: Sequence[Variant], name: str, observe: Observe) -> StudyResult:
    """Run a grid, draw its curves by source, and check the statements of the paper."""
    rows = run_grid(grid, variants, run)
    seen = {source: observe(where(rows, source=source)) for source in distinct(rows, "source")}
    return StudyResult(
        numbers={
            "observations": {source: [one.to_json() for one in every] for source, every in seen.items()},
            "cell_seconds": sum(row["seconds"] for row in rows),
            "rows": grid_numbers(rows),
        },
        figures={f"{name}-{source}": curve_panels(where(rows, source=source)) for source in seen},
        table=grid_table(rows),
        summary=" ".join([describe_observations(seen), *_threshold(rows)]),
    )


def _threshold(rows: Sequence[Row]) -> list[str]:
    (source, variant, size, width), theirs = THRESHOLD
    cells = where(rows, source=source, variant=variant, size=size, width=width)
    if not cells:
        return []
    good = " and ".join(str(row["good"]) for row in cells)
    return [
        f"Of {size} images at width {width}, {good} reconstructions are good; the paper's curve falls after {theirs}."
    ]


def _figure2(rows: Sequence[Row]) -> list[Observation]:
    return [smaller_is_easier(rows), wider_resolves_more(rows), linearised_is_better(rows)]


def _figure4(rows: Sequence[Row]) -> list[Observation]:
    return [unaffected_by(rows, EARLY)]


def _figure5(rows: Sequence[Row]) -> list[Observation]:
    ten = where(rows, variant=TEN_CLASSES.name)
    return [more_classes_are_better(rows), smaller_is_easier(ten), wider_resolves_more(ten)]


GPU = Effort(steps=4000, precision="tf32", stop_loss=1e-8)
SMOKE = Grid(sources=("digits",), sizes=(10, 14), widths=(16, 64), effort=Effort(steps=20, stop_loss=5e-3))
LAPTOP = Grid(
    sources=("mnist or digits",),
    sizes=(10, 20, 40, 80),
    widths=(64, 128, 256, 512),
    splits=2,
    effort=Effort(steps=2000),
)
ONE_GPU = Grid(sources=("mnist", "cifar-10"), sizes=(20, 100, 200, 500), widths=(256, 1024, 4096), effort=GPU)
FULL = Grid(sources=("mnist", "cifar-10"), sizes=SIZES, widths=WIDTHS, splits=3, effort=PAPER)
PRESETS: Mapping[Preset, Grid] = {
    "smoke": SMOKE,
    "cpu": LAPTOP,
    "gpu": ONE_GPU,
    "paper": replace(FULL, sizes=(20, 100, 200, 500)),
}
"""Settings of Figure 2; figures with the same settings share its cells."""
SHORTER: Mapping[Preset, Grid] = {
    **PRESETS,
    "cpu": replace(LAPTOP, sizes=(20, 40), splits=1),
    "gpu": replace(ONE_GPU, sizes=(100, 200)),
}
"""Settings of Figures 4, 5 and S2."""
EVERY_SIZE: Mapping[Preset, Grid] = {
    "smoke": SMOKE,
    "cpu": replace(LAPTOP, sizes=(10, 20, 30, 40, 50, 60, 80), widths=(64, 256), splits=1),
    "gpu": replace(ONE_GPU, sizes=SIZES),
    "paper": FULL,
}
"""Settings of the figures that show every size."""


def _study(name: str, presets: Mapping[Preset, Grid], variants: Sequence[Variant], observe: Observe) -> Study[Grid]:
    measure = functools.partial(measure_curves, variants=variants, name=name, observe=observe)
    return Study(name=name, presets=presets, measure=measure)


_DYNAMICS, _STOPPING = (STANDARD, LINEARISED), (STANDARD, EARLY)
_CLASSES = (STANDARD, TEN_CLASSES, TEN_CLASSES_LINEARISED)
STUDIES = (
    _study("figure2", PRESETS, _DYNAMICS, _figure2),
    _study("figure4", SHORTER, _STOPPING, _figure4),
    _study("figure5", SHORTER, _CLASSES, _figure5),
    _study("figureS3", EVERY_SIZE, _DYNAMICS, _figure2),
    _study("figureS5", EVERY_SIZE, _STOPPING, _figure4),
    _study("figureS6", EVERY_SIZE, _CLASSES, _figure5),
)
