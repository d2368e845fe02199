"""Figures of the studies of final weights: recovered images by case, and a gallery."""

import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from exhume.report.figures import HELD_OUT, TRAINED, create_axes
from exhume.report.gallery import draw_image_rows
from exhume.studies.buzaglo2023.cases import Plan

TITLE_WIDTH = 76
"""Characters per line of a title."""
SHORTEST_LABEL = 9
"""Characters per line of the label of a case, where there are many."""
LINE = 0.035
"""Height of a line of text, relative to the figure."""
EXACTLY = "black"
"""Colour of lines that count exact recoveries."""


def recovery_figure(plan: Plan, rows: Sequence[dict[str, Any]], axis: str, title: str = "") -> Figure:
    """Draw the share of recovered images by case, one dot per seed, and the share of held-out images as the null."""
    figure, axes = create_axes()
    labels = [case.label for case in plan.cases]
    lines = [("recovered", TRAINED, "trained on"), ("recovered_null", HELD_OUT, "held out (null)")]
    if any(row["exact"] for row in rows):
        lines.append(("exact", EXACTLY, "trained on, exactly"))
    for key, colour, name in lines:
        groups = [[row[key] / row["training_size"] for row in rows if row["label"] == label] for label in labels]
        for place, group in enumerate(groups):
            axes.scatter([place] * len(group), group, s=14, color=colour, alpha=0.6, linewidths=0)
        means = [sum(group) / len(group) for group in groups]
        axes.plot(range(len(labels)), means, color=colour, linewidth=2, label=name)
    wrapped = [textwrap.fill(label, max(SHORTEST_LABEL, TITLE_WIDTH // len(labels))) for label in labels]
    axes.set_xticks(range(len(labels)), wrapped, fontsize=8)
    axes.set_xlabel(axis)
    axes.set_ylabel("share of training images recovered at 1 % FPR")
    axes.set_ylim(0, 1)
    axes.legend(frameon=False, fontsize=8)
    axes.set_title(textwrap.fill(title, TITLE_WIDTH), fontsize=8, loc="left")
    bottom = 0.1 + LINE * max(label.count("\n") + 1 for label in wrapped)
    axes.set_position((0.13, bottom, 0.84, 0.85 - bottom))
    return figure


def gallery_figure(rows: Sequence[dict[str, Any]]) -> Figure:
    """Draw the best matches of the row that recovered most, above the training images."""
    row = max(rows, key=lambda one: one["recovered"])
    return draw_image_rows({"reconstructed": row["shown"], "trained on": row["originals"]}, (0.0, 1.0))
