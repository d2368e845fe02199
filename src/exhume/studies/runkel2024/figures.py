"""Figures of the uncertainty study: starting points, images, landscapes, certificates and beliefs."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from exhume.report.figures import HELD_OUT, INK, MUTED, TRAINED, style_axes, use_log_scale
from exhume.report.gallery import draw_image_rows
from exhume.studies.runkel2024.starts import ATTACKS, PARTITION

COLOURS = dict(zip(ATTACKS, (TRAINED, HELD_OUT), strict=True))
LEAST_DISTANCE = 1e-5
"""Smallest distance to the weights that the figure shows."""
NO_PROOF = 1.0
"""Height at which the figure draws candidates that are far from every certificate."""

Rows = Sequence[Mapping[str, Any]]


def starts_figure(rows: Rows, networks: Sequence[str]) -> Figure:
    """Draw the distance to training images and to the weights against the share of truth in the starting point."""
    figure, grid = make_panels(2, len(networks))
    for column, network in enumerate(networks):
        own = [row for row in rows if row["network"] == network]
        for axes, key, label in (
            (grid[0][column], "to_train", "to nearest training image"),
            (grid[1][column], "parameter_distance", "to the weights"),
        ):
            for attack in ATTACKS:
                line = _by_share([row for row in own if row["attack"] == attack], key)
                axes.errorbar(
                    *line, color=COLOURS[attack], linewidth=1.8, marker="o", markersize=3, capsize=2, label=attack
                )
                wrong = [row[key] for row in own if row["attack"] == attack and row["start"] == PARTITION]
                axes.plot(
                    [-0.08] * len(wrong), wrong, "D", mfc="none", color=COLOURS[attack], markersize=5, clip_on=False
                )
            key_of_start = {"to_train": "start_to_train", "parameter_distance": "parameter_distance_of_start"}[key]
            start_line = _by_share([row for row in own if row["attack"] == ATTACKS[0]], key_of_start)
            axes.plot(*start_line[:2], color=MUTED, linewidth=1, linestyle=(0, (4, 3)), label="the start itself")
            axes.set_ylabel(f"distance {label}" if column == 0 else "")
            if key == "parameter_distance":
                axes.set_ylim(LEAST_DISTANCE, 3)
                use_log_scale(axes)
                axes.set_xlabel("share of ground truth in the start (rest: noise)")
            else:
                axes.set_title(network, fontsize=9, color=INK)
    grid[0][0].plot([], [], "D", mfc="none", color=MUTED, label=f"from {PARTITION}")
    grid[0][0].legend(fontsize=7, frameon=False, labelcolor=INK)
    return figure


def _by_share(rows: Rows, key: str) -> tuple[list[float], list[float], list[float]]:
    shares: dict[float, list[float]] = {}
    for row in rows:
        if row["start"].endswith("in noise"):
            shares.setdefault(float(row["start"].partition("%")[0]) / 100, []).append(row[key])
    across = sorted(shares)
    floor = LEAST_DISTANCE if key.startswith("parameter") else 0.0
    spread = [statistics.stdev(shares[share]) if len(shares[share]) > 1 else 0.0 for share in across]
    return across, [max(floor, statistics.fmean(shares[share])) for share in across], spread


def pictures_figure(rows: Rows, networks: Sequence[str], seed: int) -> Figure:
    """Draw, for every network, the training images above starting points and results."""
    shown: dict[str, Tensor] = {}
    for network in networks:
        own = [row for row in rows if row["network"] == network and row["seed"] == seed]
        shown[f"{network}: trained on"] = own[0]["originals"]
        for start in (PARTITION, "0% truth in noise"):
            for row in (row for row in own if row["start"] == start):
                shown[f"{network}, start: {start}"] = row["begun"]
                shown[f"{network}, {row['attack']} from {start}"] = row["found"][: len(row["begun"])]
    return draw_image_rows(shown, (0.0, 1.0))


def landscape_figure(landscapes: Rows, networks: Sequence[str], seed: int) -> Figure:
    """Draw the energy along lines between training set, other partition and reconstruction, relative to its maximum."""
    figure, grid = make_panels(1, len(networks))
    for axes, network in zip(grid[0], networks, strict=True):
        for landscape in landscapes:
            if landscape["network"] != network or landscape["seed"] != seed:
                continue
            for (name, line), style in zip(landscape["energies"].items(), ("-", "--", ":"), strict=True):
                heights = np.array(line) / max(landscape["energies"][f"training set to {PARTITION}"])
                places = np.linspace(0, 1, len(line))
                colour = COLOURS[landscape["attack"]]
                label = f"{landscape['attack']}: {name}"
                axes.plot(places, heights, style, color=colour, linewidth=1.6, label=label)
        axes.set_ylim(-0.03, 1.55)  # the legend stands above the lines
        axes.set_title(network, fontsize=9, color=INK)
        axes.set_xlabel("place on the line")
    grid[0][0].set_ylabel("energy, relative to its maximum")
    grid[0][0].legend(fontsize=5.5, frameon=False, labelcolor=INK, loc="upper center")
    return figure


def certificate_figure(proofs: Mapping[str, Any]) -> Figure:
    """Draw every candidate by the agreement of restarts and by its distance to the nearest certified input."""
    figure, grid = make_panels(1, len(proofs))
    for axes, (source, found) in zip(grid[0], proofs.items(), strict=True):
        points = found["points"]
        truth, own = points["truth"].bool(), points["own_images"].bool()
        heights = points["proof_distance"].clamp(1e-9, NO_PROOF)
        kinds = (
            (truth, TRAINED, "o", "true: shows a training image"),
            (~truth & ~own, HELD_OUT, "o", "plausible, from noise"),
            (~truth & own, INK, "D", "plausible, from own images"),
        )
        for which, colour, marker, name in kinds:
            agreement = points["agreement"][which]
            axes.scatter(
                agreement, heights[which], s=9, marker=marker, color=colour, alpha=0.6, linewidths=0, label=name
            )
        use_log_scale(axes)
        axes.set_xlabel("agreement of restarts")
        areas = [_area(found[kind]) for kind in ("agreement", "certificate")]
        axes.set_title(f"{source}: area {areas[0]} by agreement, {areas[1]} by certificate", fontsize=7, color=INK)
    grid[0][0].set_ylabel("mean square to nearest certified input")
    grid[0][0].legend(fontsize=7, frameon=False, labelcolor=INK, loc="lower left")
    return figure


def roc_figure(proofs: Mapping[str, Any]) -> Figure:
    """Draw the ROC of true against plausible candidates, by each kind of evidence."""
    figure, grid = make_panels(1, len(proofs))
    ways = (("certificate", TRAINED), ("agreement", INK), ("agreement_without_own_images", HELD_OUT))
    for axes, (source, found) in zip(grid[0], proofs.items(), strict=True):
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
        for kind, colour in ways:
            if found[kind] is not None:
                rates = [found[kind][f"{side}_positive_rates"] for side in ("false", "true")]
                name = f"{kind.replace('_', ' ')}: {_area(found[kind])}"
                axes.plot(*rates, color=colour, linewidth=1.8, clip_on=False, label=name)
        axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="false positives (plausible)")
        axes.set_title(source, fontsize=9, color=INK)
        axes.legend(fontsize=7, frameon=False, labelcolor=INK, loc="lower right")
    grid[0][0].set_ylabel("true positives")
    return figure


def _area(roc: Mapping[str, Any] | None) -> str:
    return "–" if roc is None else f"{roc['auc']:.3f}"


def reliability_figure(beliefs: Rows) -> Figure:
    """Draw the fraction of true candidates against the predicted probability, on victims not used for learning."""
    sources = list(dict.fromkeys(found["source"] for found in beliefs))
    ways = list(dict.fromkeys(found["way"] for found in beliefs))
    figure, grid = make_panels(len(sources), len(ways))
    for found in beliefs:
        axes = grid[sources.index(found["source"])][ways.index(found["way"])]
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
        for one in found["bins"]:
            bars = [[one["observed"] - one["low"]], [one["high"] - one["observed"]]]
            axes.errorbar(
                one["predicted"], one["observed"], yerr=bars, xerr=one["slack"], fmt="o", markersize=4, linewidth=1.2,
                color=TRAINED if one["holds"] else INK, mfc=TRAINED if one["holds"] else "none",
            )  # fmt: skip
        axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
        axes.set_title(f"{found['source']}: {found['way']}", fontsize=7, color=INK)
    for axes in grid[-1]:
        axes.set_xlabel("predicted probability")
    for row in grid:
        row[0].set_ylabel("fraction true")
    return figure


def make_panels(rows: int, columns: int) -> tuple[Figure, list[list[Axes]]]:
    """Return a figure with a grid of axes, placed by hand because an automatic layout draws everything twice."""
    figure = Figure(figsize=(3.3 * columns + 0.2, 2.8 * rows))
    grid = [
        [
            figure.add_axes(((column + 0.17) / columns, (rows - row - 0.85) / rows, 0.79 / columns, 0.75 / rows))
            for column in range(columns)
        ]
        for row in range(rows)
    ]
    for axes in (one for line in grid for one in line):
        style_axes(axes)
    return figure, grid
