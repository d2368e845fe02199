"""Draw the figures of an evaluation: gallery, reconstruction curve, ROC curve, and singular values.

Figures are drawn without pyplot, so that the caller's plotting state stays untouched.
"""

import io
import math
from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from exhume.core.storage import write_atomically
from exhume.evaluation.verdict import plural
from exhume.records import Evaluation
from exhume.records.comparison import FINE, GOOD
from exhume.report.exhibits import Exhibit, are_images, select_exhibits, to_pixels

INK, MUTED, GRID = "#262320", "#6e675d", "#e3ddd2"
TRAINED, HELD_OUT = "#b3491f", "#3f6a8a"
"""Colours of training data and held-out data in every figure."""
MOST_IN_GALLERY, GALLERY_COLUMNS = 60, 10
"""Largest number of recoveries in the gallery, and per line; more would be too small to see."""
PNG_DPI = 160
"""Resolution of PNG files, in dots per inch."""
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def draw_figures(evaluation: Evaluation) -> dict[str, Figure]:
    """Draw every figure that the evaluation has data for, by name."""
    drawn = {name: draw(evaluation) for name, draw in FIGURES.items()}
    return {name: figure for name, figure in drawn.items() if figure is not None}


def save_figures(evaluation: Evaluation, folder: Path | str) -> list[Path]:
    """Write every figure as PNG and SVG into ``folder`` and return the paths."""
    drawn = draw_figures(evaluation)
    return [path for name, figure in drawn.items() for path in save_figure(figure, Path(folder) / name)]


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write one figure as ``stem.png`` and ``stem.svg``."""
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]
    for path in paths:
        write_atomically(path, render(figure, path.suffix[1:]))
    return paths


def render(figure: Figure, kind: str) -> bytes:
    """Return a figure as the bytes of a PNG (white) or SVG (transparent) file; equal figures give equal bytes."""
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "exhume"}):
        if kind == "svg":
            figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
        else:
            figure.savefig(buffer, format="png", dpi=PNG_DPI, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()


def draw_gallery(evaluation: Evaluation) -> Figure | None:
    """Draw recoveries above the training images they reveal, certified ones framed; None for tables."""
    shown = select_exhibits(evaluation)[:MOST_IN_GALLERY] if are_images(evaluation) else []
    if not shown:
        return None
    rows = 1 if evaluation.train is None else 2
    tiles = [_tile(exhibit, evaluation) for exhibit in shown]
    height, width = tiles[0].shape[0] // rows, tiles[0].shape[1]
    gap = max(2, width // 6)
    columns = min(GALLERY_COLUMNS, len(tiles))
    lines = math.ceil(len(tiles) / columns)
    step_x, step_y = width + gap, rows * height + gap
    mosaic = np.zeros((lines * step_y - gap, columns * step_x - gap, 4), np.uint8)
    corners = [(index % columns * step_x, index // columns * step_y) for index in range(len(tiles))]
    for (x, y), tile in zip(corners, tiles, strict=True):
        mosaic[y : y + rows * height, x : x + width, :3] = tile
        mosaic[y : y + rows * height, x : x + width, 3] = 255
    inches = 8.0 / (columns * step_x) * min(1.0, columns / 6)
    figure = Figure(figsize=(mosaic.shape[1] * inches + 1.0, mosaic.shape[0] * inches + 0.5))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.imshow(mosaic, interpolation="nearest")
    axes.set_axis_off()
    unit = 1 / inches  # one inch in pixels of the mosaic
    axes.set_xlim(-0.85 * unit, mosaic.shape[1] + 0.15 * unit)
    axes.set_ylim(mosaic.shape[0] + 0.12 * unit, -0.38 * unit)
    for (x, y), exhibit in zip(corners, shown, strict=True):
        if exhibit.certified:
            frame = (x - 1.0, y - 1.0), width + 1.0, rows * height + 1.0
            colour = INK if exhibit.has_false_certificate else TRAINED
            axes.add_patch(Rectangle(*frame, fill=False, edgecolor=colour, linewidth=1.6))
    for line in range(lines):
        for row, word in enumerate(("recovered", "trained on")[:rows]):
            middle = line * step_y + (row + 0.5) * height
            axes.text(-0.1 * unit, middle, word, ha="right", va="center", fontsize=8, color=MUTED)
    proof = "framed: certified without access to the data" if evaluation.certified else "no recovery has a certificate"
    axes.text(
        0, -0.14 * unit, proof, ha="left", va="bottom", fontsize=9, color=TRAINED if evaluation.certified else MUTED
    )
    return figure


def draw_curve(evaluation: Evaluation) -> Figure | None:
    """Draw the reconstruction curve against the same curve on held-out data; None without training data."""
    if evaluation.train is None or len(evaluation.train.curve) == 0:
        return None
    figure, axes = create_axes(right=0.85)
    size = evaluation.train.examples[0].numel()
    floor = 1e-7 * size  # the axis is logarithmic, and the distance of an exact copy is 0
    for compared, colour, name in (
        (evaluation.train, TRAINED, "trained on"),
        (evaluation.holdout, HELD_OUT, "held out"),
    ):
        if compared is None or len(compared.curve) == 0:
            continue
        heights = compared.curve.clamp(min=floor).numpy()
        axes.plot(np.arange(1, len(heights) + 1), heights, color=colour, linewidth=2, marker="o", markersize=3)
        axes.annotate(
            name, (len(heights), heights[-1]), (7, 0), textcoords="offset points", color=colour, va="center", fontsize=9
        )
    for cut, word in ((GOOD, "good"), (FINE, "fine")):
        axes.axhline(cut * size, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
        axes.annotate(
            word, (1, cut * size), (-2, 3), xycoords=("axes fraction", "data"), textcoords="offset points",
            color=MUTED, fontsize=8, ha="right",
        )  # fmt: skip
    use_log_scale(axes)
    axes.set_xlabel(f"{plural(evaluation)}, nearest first")
    axes.set_ylabel("squared distance")
    axes.margins(x=0.02)
    return figure


def draw_roc(evaluation: Evaluation) -> Figure | None:
    """Draw the ROC curve, with the rates that the hold-out set cannot resolve shaded; None without a hold-out set."""
    if evaluation.calibration is None or evaluation.relative is None:
        return None
    figure, axes = create_axes()
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.axvspan(0, evaluation.calibration.smallest_fpr, color=GRID, linewidth=0)
    ways = (
        (evaluation.calibration, INK, "by distance"),
        (evaluation.relative, TRAINED, "relative to the nearest other example"),
    )
    for place, (ranks, colour, name) in enumerate(ways):
        rates = ranks.false_positive_rates.numpy(), ranks.true_positive_rates.numpy()
        axes.plot(*rates, color=colour, linewidth=2, clip_on=False)
        word = f"{name}: AUC {ranks.auc:.3f}"
        axes.text(0.97, 0.05 + 0.07 * place, word, ha="right", fontsize=8, color=colour, transform=axes.transAxes)
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="false positives (held out)", ylabel="true positives (trained on)")
    return figure


def draw_spectrum(evaluation: Evaluation) -> Figure | None:
    """Draw the singular values of the first layer's weight change, those of training examples in colour.

    None if the attack recorded none.
    """
    values = np.array(evaluation.found.diagnostics.get("singular_values") or [], dtype=float)
    if values.size == 0 or not (values > 0).any():
        return None
    figure, axes = create_axes()
    heights = np.clip(values, values[values > 0].min(), None)
    rank = evaluation.training_size_estimate or 0
    least = "" if evaluation.training_size_is_clear else "at least "
    places = np.arange(1, len(values) + 1)
    axes.scatter(places[:rank], heights[:rank], s=10, color=TRAINED, linewidths=0)
    axes.scatter(places[rank:], heights[rank:], s=10, color=MUTED, linewidths=0)
    if 0 < rank < len(values):
        axes.axvline(rank + 0.5, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
        axes.annotate(
            f"{least}{rank} training {plural(evaluation)}", (rank + 0.5, 0.94), (6, 0),
            xycoords=("data", "axes fraction"), textcoords="offset points", color=TRAINED, fontsize=9, va="top",
        )  # fmt: skip
    use_log_scale(axes)
    axes.set_xlabel("index")
    axes.set_ylabel("singular value of the weight change")
    return figure


FIGURES: dict[str, Callable[[Evaluation], Figure | None]] = {
    "gallery": draw_gallery,
    "curve": draw_curve,
    "roc": draw_roc,
    "spectrum": draw_spectrum,
}


def create_axes(right: float = 0.97) -> tuple[Figure, Axes]:
    """Create a figure with one set of axes in the common style; ``right`` < 1 leaves room for labels."""
    figure = Figure(figsize=(5.6, 3.6))
    # The position is fixed, because an automatic layout draws everything twice.
    axes = figure.add_axes((0.13, 0.14, right - 0.13, 0.82))
    style_axes(axes)
    return figure, axes


def use_log_scale(axes: Axes) -> None:
    """Make the y axis logarithmic; call after the data is drawn.

    Powers of ten are plain text: matplotlib's own labels are formulas, which took most of the time of a report.
    """
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if high < 100 * low:  # too few powers of ten to read values from
        return
    axes.yaxis.set_major_locator(LogLocator(numticks=8))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_power(value)))
    axes.yaxis.set_minor_locator(NullLocator())


def format_power(value: float) -> str:
    """Return a power of ten as text, such as 10⁻³."""
    return "10" + str(round(math.log10(value))).translate(SUPERSCRIPTS)


def style_axes(axes: Axes) -> None:
    """Give axes the common style of figures."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GRID)
    axes.tick_params(which="both", color=GRID, labelcolor=MUTED, labelsize=8)
    axes.xaxis.label.set(color=INK, fontsize=9)
    axes.yaxis.label.set(color=INK, fontsize=9)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def _tile(exhibit: Exhibit, evaluation: Evaluation) -> np.ndarray:
    shown = [exhibit.recovered] if exhibit.original is None else [exhibit.recovered, exhibit.original]
    return np.concatenate([to_pixels(image, evaluation.bounds) for image in shown])
