"""Figure S1 of Loo et al. (2023): known initial weights against final weights alone.

Compares the weight-difference attack with an attack that needs final weights alone (Haim et al. 2022). The two need
different trainings, so one network of the same width is trained for each, on the same images.
"""

import functools
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from exhume.evaluation import evaluate
from exhume.studies.buzaglo2023.cases import ALL_PIXELS, LARGE, QUICK, TINY, Case, train_case
from exhume.studies.curve_panels import attack_panels
from exhume.studies.grid import PAPER, Effort, Row, attack_table, grid_numbers
from exhume.studies.metrics import evaluation_numbers
from exhume.studies.study import Study, StudyResult, StudyRun
from exhume.studies.tasks import first_available

START_KNOWN, FINAL_ALONE = "start known", "final weights alone"


@dataclass(frozen=True, kw_only=True)
class Rivals:
    """Settings of Figure S1."""

    sources: tuple[str, ...]
    size: int
    width: int
    effort: Effort = Effort()  # noqa: RUF009 - frozen
    train_steps: int = 3000
    """Training steps of the network attacked by its final weights alone; it must train far beyond separation."""
    search: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the attack on final weights alone that differ from its defaults."""


def measure(settings: Rivals, run: StudyRun) -> StudyResult:
    """Compare an attack that knows the initial weights with one that knows the final weights alone."""
    rows: list[Row] = []
    run.cells = 2 * len(settings.sources)
    for source in map(first_available, settings.sources):
        trial = settings.effort.trial(source, settings.size, settings.width, run.seed)
        final_only = functools.partial(_measure_final_weights, settings, source, run)
        labels = {"source": source, "size": settings.size, "width": settings.width}
        rows.append(labels | {"variant": START_KNOWN} | trial.run(run))
        rows.append(labels | {"variant": FINAL_ALONE} | run.cell(f"{source}-final-weights", final_only))
    return StudyResult(
        numbers={"rows": grid_numbers(rows)},
        figures={"figureS1": attack_panels(rows)},
        table=attack_table(rows),
        summary=" ".join(_compare(rows[first], rows[first + 1]) for first in range(0, len(rows), 2)),
    )


def _measure_final_weights(settings: Rivals, source: str, run: StudyRun) -> dict[str, Any]:
    tasks = {"cifar-10": "animal-vehicle", "faces": "all"}
    case = Case(
        label="", source=source, classes=tasks.get(source, "odd-even"), size=settings.size, shrink=1,
        strangers=settings.size, width=settings.width, loss="bce", train_steps=settings.train_steps,
        settings={"candidates": 2 * settings.size, **settings.search},
    )  # fmt: skip
    data = case.draw(run.seed)
    victim = train_case(case, data, run.seed, run)
    found = run.attack(case.build_attack(), replace(victim.view(), initial=None))
    return evaluation_numbers(evaluate(found, data))


def _compare(known: Row, alone: Row) -> str:
    pairs = itertools.zip_longest(known["curve"].tolist(), alone["curve"].tolist(), fillvalue=math.inf)
    ahead = sum(ours < theirs for ours, theirs in pairs)  # fewer candidates than images: the rest are infinitely far
    return (
        f"On {known['source']}, known initial weights give {known['good']} good images of {known['size']} and final "
        f"weights alone {alone['good']} ({known['null_good']} and {alone['null_good']} held-out ones). With known "
        f"initial weights the curve is lower for {ahead} of {known['size']} images; in the paper, for the first 50 of "
        "500 on MNIST and for few on CIFAR-10."
    )


STUDIES = (
    Study(
        name="figureS1",
        presets={
            "smoke": Rivals(
                sources=("digits",), size=10, width=64, effort=Effort(steps=40, stop_loss=1e-4), train_steps=60,
                search=TINY,
            ),
            "cpu": Rivals(sources=("mnist or digits",), size=20, width=200, search=QUICK),
            "gpu": Rivals(
                sources=("mnist", "cifar-10"), size=500, width=1024, effort=Effort(steps=3000, precision="tf32"),
                train_steps=10_000, search=LARGE | {"trials": 8, "restarts": 4, "steps": 3000},
            ),
            "paper": Rivals(
                sources=("mnist", "cifar-10"), size=500, width=1024, effort=PAPER, train_steps=1_000_000,
                search=ALL_PIXELS | {"steps": 50_000},
            ),
        },
        measure=measure,
    ),
)  # fmt: skip
