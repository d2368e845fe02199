"""The paper's own full settings for the studies of distillation, and Figure S4, which is Figure 8 at every size."""

from dataclasses import replace

from exhume.experiments import distillation_figures as figures
from exhume.experiments.curve_figures import SIZES
from exhume.experiments.distilled import Recipe
from exhume.experiments.study import Study
from exhume.experiments.table1 import TABLE1, Table

FULL = Recipe(
    steps=50_000, kip_steps=50_000, kip_rate=0.001, finite_steps=80_000, training_steps=1_000_000, stop_loss=1e-10
)
"""Loo et al. (2023), S5: Adam at 0.001 for every distillation, trainings of a million steps or to a loss of 1e-10."""
BOTH = ("mnist", "cifar-10")

FULL_TABLE1: Study[Table] = replace(
    TABLE1, presets={**TABLE1.presets, "paper": Table(sources=BOTH, splits=7, recipe=FULL)}
)
FULL_FIGURE6: Study[figures.Few] = replace(
    figures.FIGURE6,
    presets={**figures.FIGURE6.presets, "paper": figures.Few(source="cifar-10", size=500, recipe=FULL)},
)
FULL_FIGURE7: Study[figures.Sizes] = replace(
    figures.FIGURE7,
    presets={**figures.FIGURE7.presets, "paper": figures.Sizes(sources=BOTH, sizes=SIZES, splits=3, recipe=FULL)},
)
_AFTER_DISTILLATION = figures.Sizes(sources=BOTH, sizes=(20, 100, 200, 500), recipe=FULL, search_steps=80_000)
FULL_FIGURE8: Study[figures.Sizes] = replace(
    figures.FIGURE8, presets={**figures.FIGURE8.presets, "paper": _AFTER_DISTILLATION}
)
FULL_FIGURE9: Study[figures.Pictures] = replace(
    figures.FIGURE9,
    presets={**figures.FIGURE9.presets, "paper": figures.Pictures(sources=BOTH, size=500, recipe=FULL)},
)
FIGURE_S4: Study[figures.Sizes] = replace(
    FULL_FIGURE8,
    name="figureS4",
    shows="what attacks recover after training on distilled images, at every size (Loo et al. 2023, Figure S4)",
    presets={
        "smoke": FULL_FIGURE8.presets["smoke"],
        "cpu": replace(figures.FIGURE8.presets["cpu"], sizes=(10, 20, 30, 50)),
        "gpu": replace(figures.FIGURE8.presets["gpu"], sizes=(20, 50, 100, 200, 500)),
        "paper": replace(_AFTER_DISTILLATION, sizes=SIZES),
    },
)
