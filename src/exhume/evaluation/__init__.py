"""Evaluation: no number without its null."""

from exhume.evaluation.calibration import calibrate
from exhume.evaluation.comparison import compare
from exhume.evaluation.evaluate import evaluate
from exhume.evaluation.matching import match
from exhume.evaluation.verdict import Finding, Verdict, verdict

__all__ = ["Finding", "Verdict", "calibrate", "compare", "evaluate", "match", "verdict"]
