"""Figures 3 and S2 of Loo et al. (2023): reconstruction error against the change of the tangent kernel."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from exhume.report.figures import MUTED, create_axes
from exhume.studies.drawing import PALETTE
from exhume.studies.grid import (
    STANDARD,
    TEN_CLASSES,
    Grid,
    Row,
    distinct,
    grid_numbers,
    mean_error,
    run_grid,
    where,
)
from exhume.studies.loo2023.figures2_4_5 import PRESETS, SHORTER
from exhume.studies.loo2023.observations import (
    Observation,
    describe_observations,
    error_follows_kernel_distance,
    more_classes_change_the_kernel_less,
)
from exhume.studies.study import Study, StudyResult, StudyRun

PUBLISHED: Mapping[str, Mapping[str, float]] = {
    "mnist": {STANDARD.name: 3e-2, TEN_CLASSES.name: 1e-2},
    "cifar-10": {STANDARD.name: 9e-2, TEN_CLASSES.name: 2e-2},
}
"""The largest kernel distances the paper shows, at widths from 256 to 4096 and sizes from 20 to 500."""


def measure_two_classes(grid: Grid, run: StudyRun) -> StudyResult:
    """Plot error against kernel distance for two classes."""
    rows = run_grid(grid, (STANDARD,), run)
    seen = {source: [error_follows_kernel_distance(where(rows, source=source))] for source in distinct(rows, "source")}
    return _result(rows, seen, STANDARD.name, "figure3")


def measure_ten_classes(grid: Grid, run: StudyRun) -> StudyResult:
    """Plot error against kernel distance for ten classes, and compare the kernel's change with that for two."""
    rows = run_grid(grid, (STANDARD, TEN_CLASSES), run)
    seen: dict[str, list[Observation]] = {}
    for source in distinct(rows, "source"):
        own = where(rows, source=source)
        seen[source] = [
            error_follows_kernel_distance(where(own, variant=TEN_CLASSES.name)),
            more_classes_change_the_kernel_less(own),
        ]
    return _result(rows, seen, TEN_CLASSES.name, "figureS2")


def _result(rows: list[Row], seen: Mapping[str, Sequence[Observation]], variant: str, name: str) -> StudyResult:
    shown = where(rows, variant=variant)
    compared = [
        f"The paper's largest distance on {source} is {PUBLISHED[source][variant]:g}, over widths from 256 to 4096."
        for source in seen
        if source in PUBLISHED
    ]
    return StudyResult(
        numbers={
            "observations": {source: [one.to_json() for one in every] for source, every in seen.items()},
            "rows": grid_numbers(rows),
        },
        figures={f"{name}-{source}": _scatter(where(shown, source=source)) for source in seen},
        table=(
            ("data", "images", "width", "kernel distance", "mean error", "good"),
            [
                (r["source"], str(r["size"]), str(r["width"]), f"{r['kernel_distance']:.2g}", f"{mean_error(r):.3g}",
                 str(r["good"]))
                for r in shown
            ],
        ),
        summary=" ".join([describe_observations(seen), *compared]),
    )  # fmt: skip


def _scatter(rows: Sequence[Row]) -> Figure:
    """Draw one dot per network: larger for larger sets, coloured by width."""
    figure, axes = create_axes()
    largest = max(row["size"] for row in rows)
    for width, colour in zip(distinct(rows, "width"), PALETTE, strict=False):
        own = where(rows, width=width)
        axes.scatter(
            [row["kernel_distance"] for row in own],
            [mean_error(row) for row in own],
            s=[10 + 90 * row["size"] / largest for row in own],
            color=colour, alpha=0.75, linewidths=0,
        )  # fmt: skip
        axes.scatter([], [], s=30, color=colour, label=f"width {width}")
    axes.set(xscale="log", yscale="log", xlabel="kernel distance over training")
    axes.set_ylabel("mean squared distance of reconstructions")
    axes.xaxis.set_minor_formatter(NullFormatter())  # within a decade or two they would overlap
    axes.yaxis.set_minor_formatter(NullFormatter())
    # The null: the distance of the same candidates from held-out images.
    null = min(float(row["null_curve"].mean()) for row in rows)
    axes.axhline(null, color=MUTED, linewidth=1.0, linestyle=(0, (1, 1.5)), label="held out (null)")
    axes.legend(frameon=False, fontsize=7, title=f"dots: up to {largest} images", title_fontsize=7)
    return figure


STUDIES = (
    Study(name="figure3", presets=PRESETS, measure=measure_two_classes),
    Study(name="figureS2", presets=SHORTER, measure=measure_ten_classes),
)
