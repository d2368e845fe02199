"""The studies of distillation in the paper's full setting, beside its claims; Figure S4 is Figure 8 at every size."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from exhume.studies.loo2023 import distillation_figures as figures
from exhume.studies.loo2023.curve_figures import SIZES
from exhume.studies.loo2023.distillation_observations import (
    few_teach_much,
    only_kip_fails_to_transfer,
    only_rkip_copies,
    only_rkip_gives_originals_away,
)
from exhume.studies.loo2023.distilled import Recipe
from exhume.studies.loo2023.observations import Observation
from exhume.studies.loo2023.table1 import TABLE1, Table
from exhume.studies.study import Bench, Findings, Study

Settings = TypeVar("Settings")

FULL = Recipe(
    steps=50_000, kip_steps=50_000, kip_rate=0.001, finite_steps=80_000, training_steps=1_000_000, stop_loss=1e-10
)
"""Loo et al. (2023), S5: Adam at 0.001 for every distillation, trainings of a million steps or to a loss of 1e-10."""
BOTH = ("mnist", "cifar-10")


def full(
    study: Study[Settings], paper: Settings, observe: Callable[[Mapping[str, Any]], Sequence[Observation]]
) -> Study[Settings]:
    """Return a study with the paper's own setting, and with what the paper observed in its summary."""

    def measure(settings: Settings, bench: Bench) -> Findings:
        found = study.measure(settings, bench)
        said = [one.sentence[0].upper() + one.sentence[1:] for one in observe(found.numbers)]
        return replace(found, summary=" ".join([found.summary, *said]).strip())

    return replace(study, presets={**study.presets, "paper": paper}, measure=measure)


FULL_TABLE1 = full(TABLE1, Table(sources=BOTH, splits=7, recipe=FULL), lambda numbers: [])
FULL_FIGURE6 = full(figures.FIGURE6, figures.Few(source="cifar-10", size=500, recipe=FULL), few_teach_much)
FULL_FIGURE7 = full(
    figures.FIGURE7, figures.Sizes(sources=BOTH, sizes=SIZES, splits=3, recipe=FULL), only_kip_fails_to_transfer
)
FULL_FIGURE8 = full(
    figures.FIGURE8,
    figures.Sizes(sources=BOTH, sizes=(20, 100, 200, 500), recipe=FULL, search_steps=80_000),
    only_rkip_gives_originals_away,
)
FULL_FIGURE9 = full(figures.FIGURE9, figures.Pictures(sources=BOTH, size=500, recipe=FULL), only_rkip_copies)


def _every_size(settings: figures.Sizes, bench: Bench) -> Findings:
    found = FULL_FIGURE8.measure(settings, bench)
    named = {name.replace("figure8", "figureS4"): figure for name, figure in found.figures.items()}
    return replace(found, figures=named)


FIGURE_S4 = replace(
    FULL_FIGURE8,
    name="figureS4",
    measure=_every_size,
    shows="what attacks recover after training on distilled images, at every size (Loo et al. 2023, Figure S4)",
    presets={
        "smoke": FULL_FIGURE8.presets["smoke"],
        "cpu": replace(FULL_FIGURE8.presets["cpu"], sizes=(10, 20, 30, 50)),
        "gpu": replace(FULL_FIGURE8.presets["gpu"], sizes=(20, 50, 100, 200, 500)),
        "paper": replace(FULL_FIGURE8.presets["paper"], sizes=SIZES),
    },
)
