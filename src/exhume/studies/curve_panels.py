"""Reconstruction curves in panels, with the curve of held-out images as the null."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from exhume.records.comparison import GOOD
from exhume.report.figures import INK, MUTED, style_axes, use_log_scale
from exhume.studies.drawing import PALETTE
from exhume.studies.grid import Row, distinct, mean_curve, where

FLOOR = 1e-7
"""Smallest mean square per value that is drawn, since an exact copy has no logarithm."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Ascending curves of squared distances by name, the curve of the null, and the number of values per input."""

    lines: Mapping[str, Tensor]
    null: Tensor
    values: int


def curve_panels(rows: Sequence[Row]) -> Figure:
    """Draw the mean curves of one source: one row per variant, one column per size, one line per width.

    The null is the lowest curve of held-out images among the lines of a panel.
    """
    variants, sizes, widths = (distinct(rows, key) for key in ("variant", "size", "width"))
    figure = Figure(figsize=(1.0 + 2.2 * len(sizes), 1.0 + 1.9 * len(variants)))
    panels = figure.subplots(len(variants), len(sizes), squeeze=False, sharey=True, sharex="col")
    for line, variant in enumerate(variants):
        for column, size in enumerate(sizes):
            cells = where(rows, variant=variant, size=size)
            nulls = torch.stack([mean_curve(where(cells, width=width), "null_curve") for width in widths])
            panel = Panel(
                lines={f"width {width}": mean_curve(where(cells, width=width)) for width in widths},
                null=nulls.amin(0),
                values=cells[0]["values"],
            )
            axes = panels[line][column]
            _draw_curves(axes, panel)
            axes.set_title(f"{size} images" if line == 0 else "", fontsize=9, color=INK)
            axes.set_ylabel(variant if column == 0 else "", fontsize=9, color=INK)
    _share_legend(figure, panels[0][0])
    return figure


def attack_panels(rows: Sequence[Row]) -> Figure:
    """Draw one panel per network, with one line per attack; the null is that of the attack with the lowest."""
    networks = dict.fromkeys((row["source"], row["size"], row["width"]) for row in rows)
    panels = {}
    for source, size, width in networks:
        own = where(rows, source=source, size=size, width=width)
        lowest = min(own, key=lambda row: float(row["null_curve"].mean()))
        panels[f"{source}, {size} images, width {width}"] = Panel(
            lines={row["variant"]: row["curve"] for row in own}, null=lowest["null_curve"], values=own[0]["values"]
        )
    return draw_side_by_side(panels)


def draw_side_by_side(panels: Mapping[str, Panel]) -> Figure:
    """Draw panels side by side."""
    figure = Figure(figsize=(1.0 + 3.4 * len(panels), 3.4))
    every = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (title, panel) in zip(every, panels.items(), strict=True):
        _draw_curves(axes, panel)
        axes.set_title(title, fontsize=9, color=INK)
    every[0].set_ylabel("squared distance", fontsize=9, color=INK)
    _share_legend(figure, every[0])
    return figure


def _draw_curves(axes: Axes, panel: Panel) -> None:
    """Draw the curves of a panel, the null, and the threshold below which a reconstruction counts as good."""
    for (name, curve), colour in zip(panel.lines.items(), PALETTE, strict=False):
        heights = curve.clamp(min=FLOOR * panel.values)
        axes.plot(range(1, len(curve) + 1), heights, color=colour, linewidth=1.5, label=name)
    null = range(1, len(panel.null) + 1), panel.null
    axes.plot(*null, color=MUTED, linewidth=1.2, linestyle=(0, (1, 1.5)), label="held out (null)")
    axes.axhline(GOOD * panel.values, color=MUTED, linewidth=0.7, linestyle=(0, (6, 3)), label="good below")
    use_log_scale(axes)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    style_axes(axes)
    axes.tick_params(which="both", labelsize=7)


def _share_legend(figure: Figure, axes: Axes) -> None:
    """Put one legend below all panels, and leave room for its lines of text, in inches."""
    handles, names = axes.get_legend_handles_labels()
    width, height = figure.get_size_inches()
    columns = min(len(names), max(1, int(width / 1.5)))
    lines = -(-len(names) // columns)
    figure.legend(handles, names, loc="lower center", ncols=columns, frameon=False, fontsize=8)
    figure.subplots_adjust(
        left=0.75 / width, right=1 - 0.1 / width, top=1 - 0.3 / height, bottom=(0.35 + 0.2 * lines) / height,
        wspace=0.12, hspace=0.15,
    )  # fmt: skip
