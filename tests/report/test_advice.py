"""Recommendations: each finding has its own."""

from dataclasses import replace

import pytest

from exhume.core.text import count_noun
from exhume.evaluation.verdict import Finding
from exhume.records import Audit, Price, StartCandidate, StartEvidence
from exhume.records.audit import STATE_DROPPED
from exhume.report.advice import recommend
from tests.report.synthetic_audits import make_audit


def audit(*, knew_start=True, **others):
    evaluation = replace(make_audit(), given={"initial weights": knew_start})
    return Audit(evaluations={"first": evaluation}, **others)


def recommendations(audited, finding):
    return " ".join(advice.what for advice in recommend(audited, finding))


@pytest.mark.parametrize("finding", list(Finding))
def test_every_finding_has_recommendations_and_reasons(finding):
    advice = recommend(audit(), finding)
    assert advice
    assert all(one.what.endswith(".") and one.why.endswith(".") for one in advice)
    releases = "Do not release these weights." in [one.what for one in advice]
    assert releases == (finding not in (Finding.UNTESTED, Finding.NOTHING, Finding.UNPROVEN))


def test_a_search_for_initial_weights_is_recommended_where_they_are_unknown():
    assert "search for the initial weights" in recommendations(audit(knew_start=False), Finding.NOTHING)
    assert "search for the initial weights" not in recommendations(audit(), Finding.NOTHING)


def test_initial_weights_that_were_found_are_no_secret():
    candidates = (StartCandidate(name="seed 7", distance=0.1, correlation=0.99, log10_p=-300.0),)
    found = audit(start=StartEvidence(candidates=candidates, tried=100))
    assert "were found by search" in recommendations(found, Finding.PROVEN)
    assert "Do not rely on secret initial weights." in recommendations(audit(), Finding.PROVEN)


def test_measured_defences_are_referred_to():
    measured = audit(prices=(Price(change="noise", certified=0),))
    assert "measured on this network" in " ".join(one.why for one in recommend(measured, Finding.PROVEN))
    assert "--defences" in " ".join(one.why for one in recommend(audit(), Finding.PROVEN))


def test_what_the_attacker_held_decides_what_to_withhold():
    for held, advice in (
        ("optimiser state", "without the optimiser's state"),
        ("gradient", "Do not hand out gradients"),
    ):
        evaluation = replace(make_audit(), given={"initial weights": False, held: True})
        assert advice in recommendations(Audit(evaluations={"first": evaluation}), Finding.PROVEN)
        assert advice not in recommendations(audit(), Finding.PROVEN)


def test_the_advice_to_drop_the_state_states_what_was_measured():
    evaluation = replace(make_audit(), given={"initial weights": False, "optimiser state": True})
    held = Audit(evaluations={"first": evaluation})
    assert "add --defences" in " ".join(one.why for one in recommend(held, Finding.PROVEN))
    measured = replace(held, prices=(Price(change=STATE_DROPPED, certified=0),))
    words = " ".join(one.why for one in recommend(measured, Finding.PROVEN))
    assert f"proves {count_noun(evaluation.certified, 'example')} with the state and 0 without it" in words
    assert "add --defences" not in words
    stopped = replace(held, prices=(Price(change=STATE_DROPPED, certified=None),))
    assert "add --defences" in " ".join(one.why for one in recommend(stopped, Finding.PROVEN))
