"""Studies: what the papers measured and what we measure, each one command."""

from typing import Any

from exhume.experiments.defences import DEFENCES
from exhume.experiments.distillation_figures import DISTILLATION_FIGURES
from exhume.experiments.max_margin import MAX_MARGIN_STUDIES
from exhume.experiments.study import Bench, Findings, Preset, Study
from exhume.experiments.table1 import TABLE1

_ALL: tuple[Study[Any], ...] = (TABLE1, *DISTILLATION_FIGURES, DEFENCES, *MAX_MARGIN_STUDIES)
STUDIES = {study.name: study for study in _ALL}
"""Every study by name; a new one costs its file and its place in the line above."""

__all__ = ["STUDIES", "Bench", "Findings", "Preset", "Study"]
