"""Attacks side by side: theirs and ours on the same networks, and Figure S1 of Loo et al. (2023).

Figure S1 lays the weight-difference attack beside one that needs final weights alone (Haim et al. 2022). They need
different networks: one of the same width is trained for each, on the same images.
"""

import functools
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from matplotlib.figure import Figure

from exhume.attacks.attack import Attack
from exhume.attacks.gates.gate_certificate import GateCertificate
from exhume.attacks.weight_difference import WeightDifference
from exhume.evaluation import evaluate
from exhume.studies.buzaglo2023 import max_margin
from exhume.studies.grid import PAPER, Effort, Row, grid_numbers
from exhume.studies.loo2023.curve_panels import Panel, curves_beside
from exhume.studies.study import Bench, Findings, Study
from exhume.studies.trial import Trial, at_hand, measured

THEIRS, OURS, PROVEN = "the paper's recipe", "weight difference", "gate certificate"
START_KNOWN, FINAL_ALONE = "start known", "final weights alone"


@dataclass(frozen=True, kw_only=True)
class Victims:
    """Settings of the comparison with the paper's recipe."""

    networks: tuple[tuple[str, int, int], ...]
    """Source, size and width of each."""
    effort: Effort = Effort()  # noqa: RUF009 - frozen
    published_steps: int = 80_000
    """Of the paper's recipe, which takes this many; fewer where a CPU must take them."""


def theirs_and_ours(settings: Victims, bench: Bench) -> Findings:
    """Attack the same networks by the paper's recipe, by our search, and by the certificate."""
    rows: list[Row] = []
    bench.cells = 3 * len(settings.networks)
    published = replace(settings.effort, published=True, steps=settings.published_steps, candidates=2.0)
    for sources, size, width in settings.networks:
        attacks: dict[str, Attack] = {
            THEIRS: published.attack(size),
            OURS: replace(settings.effort.attack(size), candidates=None),
            PROVEN: GateCertificate(),
        }
        source = at_hand(sources)
        for name, attack in attacks.items():
            trial = Trial(
                source=source, size=size, width=width, attack=attack, stop_loss=settings.effort.stop_loss,
                schedule=settings.effort.schedule, seed=bench.seed,
            )  # fmt: skip
            rows.append({"source": source, "variant": name, "size": size, "width": width} | trial.run(bench))
    cut = settings.published_steps / WeightDifference.published().steps
    return Findings(
        numbers={"rows": grid_numbers(rows)},
        figures={"theirs-and-ours": _panels(rows)},
        table=_table(rows),
        summary=" ".join(
            [
                *(_ahead(rows[first : first + 3]) for first in range(0, len(rows), 3)),
                *([f"The paper's recipe was cut to {100 * cut:.2g} % of its steps."] if cut < 1 else []),
            ]
        ),
    )


def _ahead(rows: list[Row]) -> str:
    theirs, _, proven = rows
    said = ", ".join(
        f"{row['variant']} {row['good']} good, {row['fine']} fine and {row['exact']} exact "
        f"in {row['attack_seconds']:.1f} s"
        for row in rows
    )
    order = "ahead of" if proven["exact"] > theirs["exact"] else "not ahead of"
    return (
        f"{theirs['size']} images of {theirs['source']} at width {theirs['width']}: {said}; the certificate proves "
        f"{proven['certified']} ({proven['false_certificates']} falsely) and is {order} the paper."
    )


@dataclass(frozen=True, kw_only=True)
class Rivals:
    """Settings of Figure S1."""

    sources: tuple[str, ...]
    size: int
    width: int
    effort: Effort = Effort()  # noqa: RUF009 - frozen
    train_steps: int = 3000
    """Of the network attacked by its final weights alone, which must go on far beyond separation."""
    search: Mapping[str, Any] = field(default_factory=dict)
    """Of the attack on final weights alone, where it differs from the defaults."""


def with_and_without_the_start(settings: Rivals, bench: Bench) -> Findings:
    """Lay what a known start gives beside what final weights alone give."""
    rows: list[Row] = []
    bench.cells = 2 * len(settings.sources)
    for source in map(at_hand, settings.sources):
        trial = Trial(
            source=source, size=settings.size, width=settings.width, attack=settings.effort.attack(settings.size),
            stop_loss=settings.effort.stop_loss, schedule=settings.effort.schedule, seed=bench.seed,
        )  # fmt: skip
        alone = functools.partial(_final_weights_alone, settings, source, bench)
        which = {"source": source, "size": settings.size, "width": settings.width}
        rows.append(which | {"variant": START_KNOWN} | trial.run(bench))
        rows.append(which | {"variant": FINAL_ALONE} | bench.cell(f"{source}-final-weights", alone))
    return Findings(
        numbers={"rows": grid_numbers(rows)},
        figures={"figureS1": _panels(rows)},
        table=_table(rows),
        summary=" ".join(_crossing(rows[first], rows[first + 1]) for first in range(0, len(rows), 2)),
    )


def _final_weights_alone(settings: Rivals, source: str, bench: Bench) -> dict[str, Any]:
    tasks = {"cifar-10": "animal-vehicle", "faces": "all"}
    case = max_margin.Case(
        label="", source=source, classes=tasks.get(source, "odd-even"), size=settings.size, shrink=1,
        strangers=settings.size, width=settings.width, loss="bce", train_steps=settings.train_steps,
        settings={"candidates": 2 * settings.size, **settings.search},
    )  # fmt: skip
    data = max_margin.drawn(case, bench.seed)
    victim = max_margin.trained(case, data, bench.seed, bench)
    found = max_margin.attack_of(case).run(
        replace(victim.view(), initial=None), seed=bench.seed, device=bench.device, progress=bench.progress
    )
    return measured(evaluate(found, data))


def _crossing(known: Row, alone: Row) -> str:
    pairs = itertools.zip_longest(known["curve"].tolist(), alone["curve"].tolist(), fillvalue=math.inf)
    ahead = sum(ours < theirs for ours, theirs in pairs)  # with fewer candidates than images, some are infinitely far
    return (
        f"On {known['source']}, a known start gives {known['good']} good images of {known['size']} and final weights "
        f"alone {alone['good']} ({known['null_good']} and {alone['null_good']} held-out ones); its curve is the lower "
        f"one for {ahead} of {known['size']} images. In the paper it is for the first 50 of 500 on MNIST and for few "
        "on CIFAR-10."
    )


def _panels(rows: list[Row]) -> Figure:
    titles = dict.fromkeys((row["source"], row["size"], row["width"]) for row in rows)
    panels = {}
    for source, size, width in titles:
        own = [row for row in rows if (row["source"], row["size"], row["width"]) == (source, size, width)]
        lowest = min(own, key=lambda row: float(row["null_curve"].mean()))
        panels[f"{source}, {size} images, width {width}"] = Panel(
            lines={row["variant"]: row["curve"] for row in own}, null=lowest["null_curve"], values=own[0]["values"]
        )
    return curves_beside(panels)


def _table(rows: list[Row]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    counted = ("good", "fine", "exact", "null_good", "certified", "false_certificates")
    names = ("good", "fine", "exact", "held out, good", "certified", "false")
    return (
        ("data", "images", "width", "attack", *names, "seconds"),
        [
            (
                row["source"], str(row["size"]), str(row["width"]), row["variant"],
                *(str(row[key]) for key in counted), f"{row['attack_seconds']:.1f}",
            )
            for row in rows
        ],
    )  # fmt: skip


THEIRS_AND_OURS = Study(
    name="theirs-and-ours",
    shows="reconstruction curves of the paper's recipe and of ours, on the same networks",
    presets={
        "smoke": Victims(
            networks=(("digits", 8, 128),), effort=Effort(steps=40, stop_loss=1e-6), published_steps=60,
        ),
        "cpu": Victims(networks=(("mnist or digits", 20, 512), ("mnist or digits", 50, 512)), published_steps=4000),
        "gpu": Victims(
            networks=(("mnist", 100, 1024), ("cifar-10", 200, 2048)),
            effort=Effort(steps=10_000, precision="tf32", stop_loss=1e-10),
        ),
        "paper": Victims(
            networks=(("mnist", 100, 1024), ("cifar-10", 200, 2048)), effort=replace(PAPER, published=False),
        ),
    },
    measure=theirs_and_ours,
)  # fmt: skip
FIGURE_S1 = Study(
    name="figureS1",
    shows="what a known start adds to final weights alone (Loo et al. 2023, Figure S1)",
    presets={
        "smoke": Rivals(
            sources=("digits",), size=10, width=64, effort=Effort(steps=40, stop_loss=1e-4), train_steps=60,
            search=max_margin.TINY,
        ),
        "cpu": Rivals(sources=("mnist or digits",), size=20, width=200, search=max_margin.QUICK),
        "gpu": Rivals(
            sources=("mnist", "cifar-10"), size=500, width=1024, effort=Effort(steps=3000, precision="tf32"),
            train_steps=10_000, search=max_margin.LARGE | {"trials": 8, "restarts": 4, "steps": 3000},
        ),
        "paper": Rivals(
            sources=("mnist", "cifar-10"), size=500, width=1024, effort=PAPER, train_steps=1_000_000,
            search=max_margin.ALL_PIXELS | {"steps": 50_000},
        ),
    },
    measure=with_and_without_the_start,
)  # fmt: skip
