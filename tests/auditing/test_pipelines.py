"""Conditions and JUnit."""

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.auditing import Condition, audit, junit
from exhume.core.errors import ExhumeError
from exhume.data import load
from exhume.records import Applicability, Assessment, Audit
from tests.auditing.audited_networks import digits, trained


@pytest.fixture(scope="module")
def dossier() -> Audit:
    return audit(trained(), digits(), seed=1, budget=0.5)


@pytest.mark.parametrize(
    ("text", "is_met"),
    [
        ("certified>0", True),
        ("certified > 8", False),
        ("certified>=8", True),
        ("false_certificates!=0", False),
        ("good==8", True),
        ("recovered_at_fpr.0.01>=8", True),
        ("recovered_at_fpr>=8", True),
        ("relative_auc<0.9", False),
        ("finding>=recovered", True),
        ("finding==nothing", False),
        ("finding<proven", False),
    ],
)
def test_conditions_on_a_proven_audit(text: str, is_met: bool, dossier: Audit):
    assert Condition.read(text).is_met(dossier) is is_met


@pytest.mark.parametrize(
    "text", ["", "certified", "certified>", "certified>many", "certificates>0", "finding>bad", "a>1>2", "good=>1"]
)
def test_conditions_that_make_no_sense(text: str):
    with pytest.raises(ExhumeError):
        Condition.read(text)


def test_a_condition_on_what_is_not_known_is_an_error_and_no_pass():
    blind = audit(trained(), seed=1, budget=0.5)
    with pytest.raises(ExhumeError, match="not known here"):
        Condition.read("good>0").is_met(blind)
    assert Condition.read("certified>0").is_met(blind)


def test_certificates_that_match_none_of_the_data_given_are_no_pass():
    """Of a network whose owner gave other data than it was trained on; without data the same certificates are proof."""
    other = load("digits", classes="odd-even", size=8, centre=False, seed=4)
    fooled = audit(trained(), other, seed=1, budget=0.5)
    met = {text: Condition.read(text).is_met(fooled) for text in (
        "finding>=recovered", "finding==unmatched", "finding>=traces", "certified>0", "false_certificates>0",
        "finding>=proven", "certified_examples>0", "good>0",
    )}  # fmt: skip
    assert list(met.values()) == [True] * 5 + [False] * 3
    said = ElementTree.fromstring(junit(fooled, {})).find(".//testcase[@name='gate-certificate']/system-out")
    assert said is not None
    assert "8 certificates match none of the training images given" in (said.text or "")


@given(st.text())
def test_any_text_is_a_condition_or_an_error(text: str):
    try:
        condition = Condition.read(text)
    except ExhumeError:
        return
    assert condition.text == text


def test_junit_has_a_case_for_each_condition_and_attack(dossier: Audit):
    met = {condition: condition.is_met(dossier) for condition in map(Condition.read, ("certified>0", "certified>99"))}
    suite = ElementTree.fromstring(junit(dossier, met))[0]
    cases = {case.get("name"): case for case in suite}
    assert cases["not certified>0"].find("failure") is not None
    assert cases["not certified>99"].find("failure") is None
    assert cases["weight-difference"].find("skipped") is not None
    said = cases["gate-certificate"].find("system-out")
    assert said is not None
    assert "8 of 8" in (said.text or "")
    assert suite.get("failures") == "1"
    assert int(suite.get("tests", 0)) == len(cases)


@given(st.text(st.characters(codec="utf-8")))
def test_junit_is_xml_whatever_reasons_say(reason: str):
    one = Assessment(attack="spade", applies=Applicability.DOES_NOT, reasons=(reason,))
    ElementTree.fromstring(junit(Audit(evaluations={}, assessments=(one,)), {}))
