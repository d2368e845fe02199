"""Evaluation: every score on training data, and the same score on held-out data."""

from exhume.evaluation.audit_verdict import lead, verdict
from exhume.evaluation.belief import Belief, Reliability, learn_belief, reliability
from exhume.evaluation.calibration import calibrate
from exhume.evaluation.comparison import compare
from exhume.evaluation.consensus import Evidence, Membership, gather, memberships
from exhume.evaluation.copies import Copies, find_copies
from exhume.evaluation.evaluate import evaluate
from exhume.evaluation.matching import match
from exhume.evaluation.verdict import Finding, Verdict

__all__ = [
    "Belief",
    "Copies",
    "Evidence",
    "Finding",
    "Membership",
    "Reliability",
    "Verdict",
    "calibrate",
    "compare",
    "evaluate",
    "find_copies",
    "gather",
    "lead",
    "learn_belief",
    "match",
    "memberships",
    "reliability",
    "verdict",
]
