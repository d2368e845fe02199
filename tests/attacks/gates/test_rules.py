"""The rules: defaults are consistent, and values that contradict each other are refused."""

from dataclasses import replace

import pytest

from exhume.attacks.gates.rules import CertificateRules, SearchRules, Strategy
from exhume.core.errors import ExhumeError


def test_a_looser_bound_for_exact_than_for_plausible_inputs_is_refused():
    with pytest.raises(ExhumeError, match="exact_contradictions"):
        CertificateRules(exact_contradictions=0.1)
    assert CertificateRules(exact_contradictions=0.1, plausible_contradictions=0.2).plausible_contradictions == 0.2


@pytest.mark.parametrize(
    ("rules", "value"),
    [
        (CertificateRules(), {"single_input_agreement": 1.5}),
        (CertificateRules(), {"precision": 0.0}),
        (SearchRules(), {"passes": 0}),
        (SearchRules(), {"shared_ratios": 1}),
        (Strategy(), {"widths": (0.1, -0.1)}),
    ],
)
def test_values_out_of_range_are_refused(rules, value):
    with pytest.raises(ExhumeError, match=next(iter(value))):
        replace(rules, **value)


def test_strategies_of_groups_are_among_those_of_the_search():
    rules = SearchRules()
    assert set(rules.group_strategies) <= set(rules.strategies)
    assert all(first >= last for first, last in (strategy.widths for strategy in rules.strategies))
