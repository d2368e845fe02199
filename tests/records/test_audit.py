"""Audits: when the evidence for initial weights is clear."""

import pytest

from exhume.records import Applicability, StartCandidate, StartEvidence
from exhume.records.audit import CLEAR_START


@pytest.mark.parametrize(("log10_p", "clear"), [(CLEAR_START - 1, True), (CLEAR_START + 1, False), (0.0, False)])
def test_initial_weights_are_clear_when_chance_does_not_explain_them(log10_p: float, clear: bool) -> None:
    best = StartCandidate(name="seed 42", distance=0.1, correlation=0.9, log10_p=log10_p)
    other = StartCandidate(name="seed 43", distance=1.4, correlation=0.0, log10_p=-20.0)
    evidence = StartEvidence(candidates=(best, other), tried=2)
    assert evidence.best is best
    assert evidence.is_clear is clear


def test_applicability_reads_as_a_phrase() -> None:
    assert [str(member) for member in Applicability] == ["applies", "applies with caveats", "does not apply"]
