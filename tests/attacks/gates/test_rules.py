"""The rules: values out of their range are refused with their name."""

from dataclasses import replace

import pytest

from exhume.attacks.gates.rules import CertificateRules, SearchRules
from exhume.core.errors import ExhumeError


@pytest.mark.parametrize(
    ("rules", "value"),
    [
        (CertificateRules(), {"exact_contradictions": 1.5}),
        (CertificateRules(), {"precision": 0.0}),
        (CertificateRules(), {"forgiven_contradictions": -1}),
        (SearchRules(), {"seeds": 0}),
        (SearchRules(), {"unit_shares": (1.5, 0.0)}),
        (SearchRules(), {"jitter": -1.0}),
        (SearchRules(), {"same_cosine": 1.1}),
    ],
)
def test_values_out_of_range_are_refused(rules, value):
    with pytest.raises(ExhumeError, match=next(iter(value))):
        replace(rules, **value)


def test_polished_rows_are_told_apart_more_finely_than_rough_ones():
    rules = SearchRules()
    assert rules.similar_cosine < rules.same_cosine < 1
