"""Table, figure and summary of the defences study."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from exhume.report.figures import GRID, style_axes
from exhume.studies.drawing import PALETTE


def defence_rows(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return one row per defence: accuracy, counts, and the attacks that recovered most."""
    rows: list[tuple[str, ...]] = []
    for name, result in results.items():
        if "skipped" in result:
            rows.append((name, "", "", "", "", result["skipped"]))
            continue
        by = [
            a for a, r in result["attacks"].items() if "refused" not in r and r["recovered"] == result["recovered"] > 0
        ]
        counts = (str(result[key]) for key in ("recovered", "certified", "certified_own"))
        rows.append((name, f"{result['accuracy']:.1f}", *counts, ", ".join(by)))
    return rows


def advice(results: Mapping[str, Any], size: int) -> str:
    """Summarise which defences protect, and what they cost."""
    found = {name: result for name, result in results.items() if "skipped" not in result}
    undefended = found.pop("none")
    unsafe = sorted(
        (name for name, result in found.items() if result["recovered"] > 0.1 * size or result["certified"] > 0),
        key=lambda name: -found[name]["recovered"],
    )
    safe = {name: result for name, result in found.items() if name not in unsafe}
    text = (
        f"Without a defence the network reaches {undefended['accuracy']:.1f} % accuracy and reveals "
        f"{undefended['recovered']} of {size} training images ({undefended['certified']} of them with a proof). "
    )
    if unsafe:
        text += "These defences do not protect: " + ", ".join(
            f"{name} ({found[name]['recovered']} recovered, {found[name]['certified']} certified)"
            for name in unsafe
        ) + ". "  # fmt: skip
    if not safe:
        return text + "No defence in this comparison protects; do not release such a network with its initial weights."
    ranked = sorted(safe.items(), key=lambda item: -item[1]["accuracy"])
    best, result = ranked[0]
    text += (
        f"Of the defences with at most a tenth of the images recovered and none certified, {best} keeps the most "
        f"accuracy, {result['accuracy']:.1f} %"
    )
    others = ", ".join(f"{name} {other['accuracy']:.1f} %" for name, other in ranked[1:4])
    text += f" (then {others})." if others else "."
    proven = [name for name in safe if name.startswith("DP-SGD")]
    return text + (
        " Only DP-SGD guarantees protection against unknown attacks; the others were not broken here."
        if proven
        else " None of these guarantees protection against unknown attacks."
    )


def defence_figure(results: Mapping[str, Any], size: int) -> Figure:
    """Draw accuracy against recovered images, with a ring at the number of certified images and names at the side."""
    shown = {name: result for name, result in results.items() if "skipped" not in result}
    figure = Figure(figsize=(9.2, 5.4))
    axes = figure.add_axes((0.07, 0.1, 0.5, 0.86))
    style_axes(axes)
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    axes.set(ylim=(-0.04 * size, 1.04 * size))
    # Ordered from the bottom up, then from left to right, so that the lines to the names hardly cross.
    ordered = sorted(shown.items(), key=lambda item: (item[1]["recovered"], item[1]["accuracy"]))
    for place, (name, result) in enumerate(ordered):
        x, y, colour = result["accuracy"], result["recovered"], _colour(name)
        axes.plot(x, y, "o", color=colour, markersize=5)
        if result["certified"]:
            axes.plot([x, x], [result["certified"], y], color=colour, linewidth=0.8)
            axes.plot(x, result["certified"], "o", mfc="none", mec=colour, markersize=9)
        height = (place + 0.5) / len(ordered)
        axes.annotate(
            f"{name}: {x:.1f} %, {y} recovered" + (f", {result['certified']} certified" if result["certified"] else ""),
            (x, y), (1.06, height), textcoords="axes fraction", fontsize=7.5, color=colour, va="center",
            arrowprops={"arrowstyle": "-", "relpos": (0.0, 0.5), "color": colour, "linewidth": 0.4, "alpha": 0.6},
        )  # fmt: skip
    axes.set_xlabel("test accuracy, percent")
    axes.set_ylabel(f"training images recovered at 1 % false positives (rings: certified), of {size}")
    return figure


KINDS: tuple[tuple[str, ...], ...] = (
    ("none",),
    ("KIP", "RKIP"),
    ("DP-SGD",),
    ("weight", "Adam", "checkpoint", "state"),
    ("softplus", "gelu"),
    ("noise", "float", "bfloat", "int"),
)
"""Prefixes of the names of defences by kind; each kind has its colour."""


def _colour(name: str) -> str:
    return next(colour for colour, starts in zip(PALETTE, KINDS, strict=False) if name.startswith(starts))
