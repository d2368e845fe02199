"""Audits: which attacks apply, from which start, in which order, and what they found, to hand over."""

from exhume.auditing.account import account
from exhume.auditing.applicability import assess
from exhume.auditing.conditions import Condition
from exhume.auditing.conduct import audit
from exhume.auditing.junit import junit, write_junit
from exhume.auditing.release import prices
from exhume.auditing.start_search import find_base, find_seed, seeded

__all__ = [
    "Condition",
    "account",
    "assess",
    "audit",
    "find_base",
    "find_seed",
    "junit",
    "prices",
    "seeded",
    "write_junit",
]
