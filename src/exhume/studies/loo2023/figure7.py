"""Figure 7 of Loo et al. (2023): the accuracy that distilled sets keep, by the size of the original set."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exhume.studies.drawing import named_lines
from exhume.studies.loo2023.distilled_sets import (
    DISTILLED,
    FULL,
    LAPTOP,
    METHODS,
    QUICK_GPU,
    SMALL,
    Recipe,
    train_network,
)
from exhume.studies.loo2023.figures2_4_5 import SIZES
from exhume.studies.loo2023.observations import Observation
from exhume.studies.metrics import infinite_width_accuracy, network_accuracy
from exhume.studies.study import Study, StudyResult, StudyRun, slug
from exhume.studies.tasks import load_task

TRANSFER = 5.0
"""Largest loss of accuracy, in points, with which a distilled set still counts as transferring to networks."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Settings of Figures 7 and 8: distil training sets of several sizes."""

    sources: tuple[str, ...]
    sizes: tuple[int, ...]
    splits: int = 1
    """Number of draws."""
    test: int | None = None
    recipe: Recipe = SMALL
    search_steps: int = 300
    """Number of steps of the attack on networks trained on distilled sets (Figure 8)."""


def measure(settings: Sizes, run: StudyRun) -> StudyResult:
    """Measure the accuracy of networks trained on distilled sets, against the size of the original set."""
    methods = ("full data", *DISTILLED)
    run.cells = len(settings.sources) * len(settings.sizes) * len(methods) * settings.splits
    numbers: dict[str, Any] = {}
    for source in settings.sources:
        numbers[source] = {
            method: {
                str(size): statistics.fmean(
                    _measure_accuracy(settings, run, source, method, size, run.seed + split)["accuracy"]
                    for split in range(settings.splits)
                )
                for size in settings.sizes
            }
            for method in methods
        }
    figures = {
        f"figure7-{source}": named_lines(
            {method: ([float(size) for size in by], list(by.values())) for method, by in found.items()},
            x="training images distilled", y=f"test accuracy on {source}, percent",
        )
        for source, found in numbers.items()
    }  # fmt: skip
    rows = [
        (source, method, *(f"{value:.1f}" for value in by.values()))
        for source, found in numbers.items()
        for method, by in found.items()
    ]
    return StudyResult(
        numbers=numbers,
        figures=figures,
        table=(("data", "trained on", *map(str, settings.sizes)), rows),
        summary=" ".join(one.sentence for one in only_kip_fails_to_transfer(numbers)),
    )


def _measure_accuracy(settings: Sizes, run: StudyRun, source: str, method: str, size: int, seed: int) -> dict[str, Any]:
    def work() -> dict[str, Any]:
        data = load_task(source, size, seed, settings.test)
        assert data.test is not None
        distilled = METHODS[method](data, settings.recipe, run, seed)
        view = train_network(distilled, settings.recipe, run, seed, linearised=False)
        kernel = settings.recipe.distilling_kernel
        return {
            "accuracy": network_accuracy(view, data.test),
            "infinite": infinite_width_accuracy(distilled, data.test, kernel, run.device),
        }

    return run.cell(f"{source}/{slug(method)}-{size}-{seed}", work)


def only_kip_fails_to_transfer(numbers: Mapping[str, Any]) -> list[Observation]:
    """Check that KIP fails to transfer to finite networks while RKIP succeeds, on every source."""
    found = []
    for source, methods in numbers.items():
        size = max(methods["full data"], key=int)
        lost = {name: methods["full data"][size] - by[size] for name, by in methods.items() if name != "full data"}
        found.append(
            Observation(
                states="KIP fails to transfer to finite networks and RKIP does not",
                holds=lost["KIP"] > lost["RKIP"] and lost["RKIP"] < TRANSFER,
                values={f"{source}, {size} images, points lost by {name}": points for name, points in lost.items()},
            )
        )
    return found


STUDIES = (
    Study(
        name="figure7",
        presets={
            "smoke": Sizes(sources=("digits",), sizes=(8,), test=200),
            "cpu": Sizes(sources=("digits",), sizes=(20, 50, 100, 200, 400), recipe=LAPTOP),
            "gpu": Sizes(sources=("mnist", "cifar-10"), sizes=(20, 50, 150, 500), recipe=QUICK_GPU),
            "paper": Sizes(sources=("mnist", "cifar-10"), sizes=SIZES, splits=3, recipe=FULL),
        },
        measure=measure,
    ),
)
