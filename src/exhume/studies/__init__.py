"""Studies: what the papers measured and what we measure, each one command."""

from typing import Any

from exhume.studies.buzaglo2023.max_margin import MAX_MARGIN_STUDIES
from exhume.studies.loo2023.curve_figures import CURVE_FIGURES, EVERY_CURVE_FIGURES
from exhume.studies.loo2023.full_settings import (
    FIGURE_S4,
    FULL_FIGURE6,
    FULL_FIGURE7,
    FULL_FIGURE8,
    FULL_FIGURE9,
    FULL_TABLE1,
)
from exhume.studies.loo2023.kernel_distance_figures import KERNEL_DISTANCE_FIGURES
from exhume.studies.loo2023.rival_attacks import FIGURE_S1, THEIRS_AND_OURS
from exhume.studies.loo2023.side_by_side import SIDE_BY_SIDE
from exhume.studies.naming import MAIN_PAPER, named
from exhume.studies.ours.certificate_map import CERTIFICATE_MAP
from exhume.studies.ours.defences import DEFENCES
from exhume.studies.runkel2024.uncertainty import UNCERTAINTY
from exhume.studies.study import Bench, Findings, Preset, Study

_ALL: tuple[Study[Any], ...] = (
    SIDE_BY_SIDE,
    *CURVE_FIGURES,
    *KERNEL_DISTANCE_FIGURES,
    FULL_FIGURE6,
    FULL_FIGURE7,
    FULL_FIGURE8,
    FULL_FIGURE9,
    FULL_TABLE1,
    FIGURE_S1,
    FIGURE_S4,
    *EVERY_CURVE_FIGURES,
    THEIRS_AND_OURS,
    CERTIFICATE_MAP,
    DEFENCES,
    *MAX_MARGIN_STUDIES,
    UNCERTAINTY,
)
_ORDER = {name: place for place, name in enumerate(MAIN_PAPER)}
STUDIES = {study.name: study for study in sorted(_ALL, key=lambda study: _ORDER.get(study.name, len(_ORDER)))}
"""Every study by name, those of the main paper first; a new one costs its file and its place in the line above."""

__all__ = ["MAIN_PAPER", "STUDIES", "Bench", "Findings", "Preset", "Study", "named"]
