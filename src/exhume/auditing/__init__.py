"""Audits: which attacks apply, the search for the initial weights, the orchestrator, and results for pipelines."""

from exhume.auditing.applicability import assess
from exhume.auditing.audit_json import audit_to_json
from exhume.auditing.conditions import Condition
from exhume.auditing.junit import junit, write_junit
from exhume.auditing.orchestrator import audit
from exhume.auditing.prices import price_defences
from exhume.auditing.sarif import sarif, write_sarif
from exhume.auditing.start_search import draw_weights, find_base, find_seed

__all__ = [
    "Condition",
    "assess",
    "audit",
    "audit_to_json",
    "draw_weights",
    "find_base",
    "find_seed",
    "junit",
    "price_defences",
    "sarif",
    "write_junit",
    "write_sarif",
]
