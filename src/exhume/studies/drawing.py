"""Parts that several figures share: lines with names, and dots with error bars."""

import itertools
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from exhume.report.figures import GRID, INK, MUTED, TRAINED, create_axes, style_axes, use_log_scale

PALETTE = (TRAINED, "#3f6a8a", "#7a8b3c", "#8a5a83", "#c28f2c", INK, "#5f8f8a", "#9a4f5f")
"""Colours that differ in lightness as well as hue. Lines beyond the eighth repeat a colour."""
LINE = 0.06
"""Height of a line of text, as a fraction of the axes."""


def named_lines(
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, x: str, y: str, log_y: bool = False
) -> Figure:
    """Draw lines, each with its name at its right end."""
    figure, axes = create_axes(right=0.74)
    for colour, (across, up) in zip(PALETTE * len(lines), lines.values(), strict=False):
        axes.plot(across, up, color=colour, linewidth=1.8, marker="o", markersize=3)
    if log_y:
        use_log_scale(axes)
    axes.set(xlabel=x, ylabel=y)
    write_names_beside(axes, {name: float(up[-1]) for name, (_, up) in lines.items() if len(up)})
    return figure


def write_names_beside(axes: Axes, heights: Mapping[str, float]) -> None:
    """Write names at the right edge, each at its height but without overlap."""
    axes.figure.draw_without_rendering()  # type: ignore[union-attr] # fixes the limits
    to_axes = axes.transAxes.inverted()
    places = {name: float(to_axes.transform(axes.transData.transform((0, y)))[1]) for name, y in heights.items()}
    colours = dict(zip(places, PALETTE * len(places), strict=False))
    names = sorted(places, key=places.__getitem__)
    for below, above in itertools.pairwise(names):
        places[above] = max(places[above], places[below] + LINE)
    places[names[-1]] = min(places[names[-1]], 1.0)
    for below, above in reversed(list(itertools.pairwise(names))):
        places[below] = min(places[below], places[above] - LINE)
    for name, height in places.items():
        axes.text(1.02, height, name, color=colours[name], fontsize=8, va="center", transform=axes.transAxes)


def dot_rows(
    rows: Sequence[str],
    groups: Mapping[str, Sequence[tuple[float, float] | None]],
    *,
    x: str,
    hollow: Mapping[str, Sequence[float | None]] | None = None,
) -> Figure:
    """Draw one row per name and one dot with its standard deviation per group; hollow dots are published numbers."""
    figure = Figure(figsize=(6.4, 0.5 + 0.42 * len(rows)))
    axes = figure.add_axes((0.24, 0.28 if len(rows) < 5 else 0.16, 0.73, 0.7 if len(rows) < 5 else 0.82))
    style_axes(axes)
    axes.spines["left"].set_visible(False)
    axes.tick_params(left=False)
    axes.grid(False, axis="y")
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    for place, (colour, (name, dots)) in enumerate(zip(PALETTE, groups.items(), strict=False)):
        shift = 0.2 * (place - (len(groups) - 1) / 2)
        for row, dot in enumerate(dots):
            if dot is not None:
                axes.errorbar(dot[0], row + shift, xerr=dot[1], fmt="o", color=colour, markersize=4.5, linewidth=1.2)
            published = None if hollow is None else hollow[name][row]
            if published is not None:
                axes.plot(published, row + shift, "o", mfc="none", mec=colour, markersize=8, mew=0.8)
        axes.plot([], [], "o", color=colour, label=name)
    if hollow is not None:
        axes.plot([], [], "o", mfc="none", mec=MUTED, markersize=8, mew=0.8, label="published")
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()
    axes.set_xlabel(x)
    axes.legend(fontsize=7, frameon=False, loc="lower left", labelcolor=INK)
    return figure
