"""Reconstruction curves of Loo et al. (2023): Figures 2, 4 and 5, and S3, S5 and S6 with every size."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

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
from exhume.studies.loo2023.curve_panels import curve_panels
from exhume.studies.loo2023.observations import (
    Observation,
    linearised_is_better,
    more_classes_are_better,
    smaller_is_easier,
    unaffected_by,
    wider_resolves_more,
)
from exhume.studies.study import Bench, Findings, Preset, Study

Observe = Callable[[Sequence[Row]], Sequence[Observation]]
"""What to look for in the rows of one source."""

WIDTHS = (256, 512, 1024, 2048, 4096)
SIZES = (20, 50, 100, 150, 200, 300, 400, 500)
THRESHOLD = (("mnist", STANDARD.name, 200, 1024), 80)
"""The one threshold the paper writes down: which network, and after how many images the quality falls."""


def curves(grid: Grid, bench: Bench, variants: Sequence[Variant], name: str, observe: Observe) -> Findings:
    """Run a grid, draw its curves source by source, and check what the paper observed."""
    rows = run_grid(grid, variants, bench)
    seen = {source: observe(where(rows, source=source)) for source in distinct(rows, "source")}
    return Findings(
        numbers={
            "observations": {source: [one.to_json() for one in every] for source, every in seen.items()},
            "cell_seconds": sum(row["seconds"] for row in rows),
            "rows": grid_numbers(rows),
        },
        figures={f"{name}-{source}": curve_panels(where(rows, source=source)) for source in seen},
        table=grid_table(rows),
        summary=" ".join([told(seen), *_threshold(rows)]),
    )


def told(seen: Mapping[str, Sequence[Observation]]) -> str:
    """Say what was observed on every source, in sentences."""
    return " ".join(f"{source}: {one.sentence}" for source, every in seen.items() for one in every)


def _threshold(rows: Sequence[Row]) -> list[str]:
    (source, variant, size, width), theirs = THRESHOLD
    cells = where(rows, source=source, variant=variant, size=size, width=width)
    if not cells:
        return []
    good = " and ".join(str(row["good"]) for row in cells)
    return [f"Of {size} images at width {width}, {good} come out good; the paper's curve falls after {theirs}."]


def _figure2(rows: Sequence[Row]) -> list[Observation]:
    return [smaller_is_easier(rows), wider_resolves_more(rows), linearised_is_better(rows)]


def _figure4(rows: Sequence[Row]) -> list[Observation]:
    return [unaffected_by(rows, EARLY)]


def _figure5(rows: Sequence[Row]) -> list[Observation]:
    return [more_classes_are_better(rows), *_within_ten(rows)]


def _within_ten(rows: Sequence[Row]) -> list[Observation]:
    ten = where(rows, variant=TEN_CLASSES.name)
    return [smaller_is_easier(ten), wider_resolves_more(ten)]


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
"""Of Figure 2; others that share settings with it share its cells."""
SHORTER: Mapping[Preset, Grid] = {
    **PRESETS,
    "cpu": replace(LAPTOP, sizes=(20, 40), splits=1),
    "gpu": replace(ONE_GPU, sizes=(100, 200)),
}
"""Of the figures beside it."""
EVERY_SIZE: Mapping[Preset, Grid] = {
    "smoke": SMOKE,
    "cpu": replace(LAPTOP, sizes=(10, 20, 30, 40, 50, 60, 80), widths=(64, 256), splits=1),
    "gpu": replace(ONE_GPU, sizes=SIZES),
    "paper": FULL,
}
"""Of the figures that show every size."""


def _study(
    name: str, shows: str, presets: Mapping[Preset, Grid], variants: Sequence[Variant], observe: Observe
) -> Study[Grid]:
    def measure(grid: Grid, bench: Bench) -> Findings:
        return curves(grid, bench, variants, name, observe)

    figure = name.replace("figure", "Figure ")
    return Study(name=name, shows=f"{shows} (Loo et al. 2023, {figure})", presets=presets, measure=measure)


BY_DYNAMICS = "reconstruction curves by size and width, standard and linearised"
BY_STOPPING = "reconstruction curves after training to the end and stopped early"
BY_CLASSES = "reconstruction curves of networks that tell two classes apart and ten"
_DYNAMICS, _STOPPING = (STANDARD, LINEARISED), (STANDARD, EARLY)
_CLASSES = (STANDARD, TEN_CLASSES, TEN_CLASSES_LINEARISED)
CURVE_FIGURES = (
    _study("figure2", BY_DYNAMICS, PRESETS, _DYNAMICS, _figure2),
    _study("figure4", BY_STOPPING, SHORTER, _STOPPING, _figure4),
    _study("figure5", BY_CLASSES, SHORTER, _CLASSES, _figure5),
)
EVERY_CURVE_FIGURES = (
    _study("figureS3", f"{BY_DYNAMICS}, at every size", EVERY_SIZE, _DYNAMICS, _figure2),
    _study("figureS5", f"{BY_STOPPING}, at every size", EVERY_SIZE, _STOPPING, _figure4),
    _study("figureS6", f"{BY_CLASSES}, at every size", EVERY_SIZE, _CLASSES, _figure5),
)
