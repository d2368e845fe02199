"""Conditions for pipelines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.auditing import Condition, audit
from exhume.core.errors import ExhumeError
from exhume.data import load
from exhume.evaluation import verdict
from tests.auditing.audited_networks import proven_audit, trained


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
def test_conditions_on_a_proven_audit(text: str, is_met: bool):
    assert Condition.read(text).is_met(proven_audit()) is is_met


@pytest.mark.parametrize(
    "text", ["", "certified", "certified>", "certified>many", "certificates>0", "finding>bad", "a>1>2", "good=>1"]
)
def test_conditions_that_cannot_be_read(text: str):
    with pytest.raises(ExhumeError):
        Condition.read(text)


def test_a_condition_on_an_unknown_value_is_an_error_and_not_a_pass():
    without_data = audit(trained(), seed=1)
    with pytest.raises(ExhumeError, match="not known here"):
        Condition.read("good>0").is_met(without_data)
    assert Condition.read("certified>0").is_met(without_data)


def test_certificates_that_match_none_of_the_data_given_are_not_a_pass():
    """Of a network whose owner gave other data than it was trained on; without data the same certificates are proof."""
    other = load("digits", classes="odd-even", size=8, centre=False, seed=4)
    unmatched = audit(trained(), other, seed=1)
    met = {text: Condition.read(text).is_met(unmatched) for text in (
        "finding>=recovered", "finding==unmatched", "finding>=traces", "certified>0", "false_certificates>0",
        "finding>=proven", "certified_examples>0", "good>0",
    )}  # fmt: skip
    assert list(met.values()) == [True] * 5 + [False] * 3
    assert "8 certificates match none of the training images given" in verdict(unmatched).sentence


@given(st.text())
def test_any_text_is_a_condition_or_an_error(text: str):
    try:
        condition = Condition.read(text)
    except ExhumeError:
        return
    assert condition.text == text
