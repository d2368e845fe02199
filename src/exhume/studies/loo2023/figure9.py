"""Figure 9 of Loo et al. (2023): distilled images beside the nearest training images."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from exhume.evaluation import find_copies
from exhume.records import Dataset
from exhume.report.gallery import draw_image_rows
from exhume.studies.loo2023.distilled_sets import FULL, LAPTOP, METHODS, QUICK_GPU, SMALL, Recipe
from exhume.studies.loo2023.observations import Observation
from exhume.studies.study import Study, StudyResult, StudyRun, slug
from exhume.studies.tasks import load_task

SHOWN = ("KIP", "RKIP", "RKIP 5% noise")
"""The methods of the figure."""


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """Settings of Figure 9."""

    sources: tuple[str, ...]
    size: int
    recipe: Recipe = SMALL


def measure(settings: Pictures, run: StudyRun) -> StudyResult:
    """Draw the distilled images of every method above their nearest training images; frame those that show one."""
    run.cells = len(settings.sources) * len(SHOWN)
    numbers: dict[str, Any] = {}
    figures = {}
    for source in settings.sources:
        data = load_task(source, settings.size, run.seed)
        rows: dict[str, Tensor] = {}
        framed: dict[str, list[int]] = {}
        numbers[source] = {}
        for method in SHOWN:
            cell = run.cell(f"{source}/{slug(method)}", functools.partial(_distil, method, data, settings.recipe, run))
            numbers[source][method] = cell["finding"]
            rows[method] = cell["images"]
            rows[f"nearest to {method}"] = data.train.inputs[cell["nearest"]]
            framed[method] = [pair[0] for pair in cell["finding"]["shown_pairs"]]
        figures[f"figure9-{source}"] = draw_image_rows(rows, data.bounds, framed)
    table = [
        (source, method, str(found["copied_examples"]), str(found["shown_through_noise"]), found["sentence"])
        for source, methods in numbers.items()
        for method, found in methods.items()
    ]
    return StudyResult(
        numbers=numbers,
        figures=figures,
        table=(("data", "method", "copies", "shown", "finding"), table),
        summary=" ".join(one.sentence for one in only_rkip_copies(numbers)),
    )


def _distil(method: str, data: Dataset, recipe: Recipe, run: StudyRun) -> dict[str, Any]:
    distilled = METHODS[method](data, recipe, run, run.seed)
    copies = find_copies(distilled, data)
    return {"images": distilled.train.inputs, "nearest": copies.nearest, "finding": copies.to_json()}


def only_rkip_copies(numbers: Mapping[str, Any]) -> list[Observation]:
    """Check that KIP does not copy training images, that RKIP sometimes does, and that noise prevents it."""
    found = []
    for source, methods in numbers.items():
        copies = {name: float(finding["copied_examples"]) for name, finding in methods.items()}
        found.append(
            Observation(
                states="RKIP copies some training images, KIP none, and 5 % noise prevents it",
                holds=copies["RKIP"] > 0 and copies["KIP"] == 0 and copies["RKIP 5% noise"] == 0,
                values={f"{source}, copies by {name}": count for name, count in copies.items()},
            )
        )
    return found


STUDIES = (
    Study(
        name="figure9",
        presets={
            "smoke": Pictures(sources=("digits",), size=40),
            "cpu": Pictures(sources=("digits", "faces"), size=80, recipe=LAPTOP),
            "gpu": Pictures(sources=("mnist", "cifar-10"), size=500, recipe=QUICK_GPU),
            "paper": Pictures(sources=("mnist", "cifar-10"), size=500, recipe=FULL),
        },
        measure=measure,
    ),
)
