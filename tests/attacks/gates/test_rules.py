"""The rules: values out of their range are refused with their name."""

from dataclasses import replace

import pytest
import torch

from exhume.attacks.gates.rules import CertificateRules, SearchRules
from exhume.core.errors import ExhumeError


@pytest.mark.parametrize(
    ("rules", "value"),
    [
        (CertificateRules(), {"error_rate": 1.0}),
        (CertificateRules(), {"precision": 0.0}),
        (CertificateRules(), {"unforeseen": 0.0}),
        (SearchRules(), {"seeds": 0}),
        (SearchRules(), {"unit_shares": (1.5, 0.0)}),
        (SearchRules(), {"jitter": -1.0}),
        (SearchRules(), {"independence": 1.1}),
    ],
)
def test_values_out_of_range_are_refused(rules, value):
    with pytest.raises(ExhumeError, match=next(iter(value))):
        replace(rules, **value)


def test_noise_exceeds_the_deviations_in_one_of_as_many_runs_as_the_error_rate_says():
    rules, numbers = CertificateRules(error_rate=0.1), 50
    noise = torch.randn(4000, numbers, generator=torch.Generator().manual_seed(0))
    largest = noise.abs().amax(dim=1)
    assert 0.08 < float((largest > rules.deviations(numbers)).double().mean()) < 0.12


def test_more_units_and_a_stricter_rate_allow_more_contradictions():
    rules = CertificateRules()
    allowed = [rules.allowed_contradictions(units) for units in (10, 100, 1000, 10000)]
    assert allowed == sorted(allowed)
    assert CertificateRules(error_rate=1e-9).allowed_contradictions(1000) > allowed[2]
