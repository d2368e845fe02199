"""Evaluation: no number without its null."""

from exhume.evaluation.calibration import calibrate
from exhume.evaluation.comparison import compare
from exhume.evaluation.copies import Copies, find_copies
from exhume.evaluation.dossier import lead, verdict
from exhume.evaluation.evaluate import evaluate
from exhume.evaluation.matching import match
from exhume.evaluation.verdict import Finding, Verdict

__all__ = [
    "Copies",
    "Finding",
    "Verdict",
    "calibrate",
    "compare",
    "evaluate",
    "find_copies",
    "lead",
    "match",
    "verdict",
]
