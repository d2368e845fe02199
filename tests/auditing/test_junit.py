"""Audits as JUnit XML."""

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from exhume.auditing import Condition, junit
from exhume.records import Applicability, Assessment, Audit
from tests.auditing.audited_networks import proven_audit


def test_junit_has_a_case_for_each_condition_and_attack():
    audited = proven_audit()
    met = {condition: condition.is_met(audited) for condition in map(Condition.read, ("certified>0", "certified>99"))}
    suite = ElementTree.fromstring(junit(audited, met))[0]
    cases = {case.get("name"): case for case in suite}
    assert cases["not certified>0"].find("failure") is not None
    assert cases["not certified>99"].find("failure") is None
    assert cases["weight-difference"].find("skipped") is not None
    output = cases["gate-certificate"].find("system-out")
    assert output is not None
    assert "All 8 training images" in (output.text or "")
    assert suite.get("failures") == "1"
    assert int(suite.get("tests", 0)) == len(cases)


@given(st.text(st.characters(codec="utf-8")))
def test_junit_is_valid_xml_for_any_reason(reason: str):
    one = Assessment(attack="spade", applies=Applicability.DOES_NOT, reasons=(reason,))
    ElementTree.fromstring(junit(Audit(evaluations={}, assessments=(one,)), {}))
