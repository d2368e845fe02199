"""One verdict for all attacks of an audit."""

from dataclasses import replace

import torch

from exhume.evaluation import Finding, evaluate, lead, verdict
from exhume.evaluation.audit_verdict import gravity
from exhume.records import Applicability, Assessment, Audit, Outcome, Reconstruction
from tests.auditing.audited_networks import certified, digits


def noise(count: int) -> Reconstruction:
    return Reconstruction(
        inputs=torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(0)),
        certified=torch.zeros(count, dtype=torch.bool),
        confidence=torch.zeros(count),
        outcome=Outcome.CONVERGED,
    )


def test_findings_are_ordered_by_gravity() -> None:
    assert [gravity(finding) for finding in Finding] == sorted((gravity(one) for one in Finding), reverse=True)
    assert gravity(Finding.PROVEN) > gravity(Finding.NOTHING)


def test_the_gravest_attack_leads_whatever_the_order() -> None:
    weak, strong = evaluate(noise(3), digits()), evaluate(certified(), digits())
    fewer = evaluate(replace(certified(), certified=torch.arange(8) < 3), digits())
    for evaluations in ({"weak": weak, "few": fewer, "all": strong}, {"all": strong, "weak": weak, "few": fewer}):
        audited = Audit(evaluations=evaluations)
        assert lead(audited) == "all"
        assert verdict(audited).sentence == verdict(strong).sentence
        assert "2 other attacks ran" in verdict(audited).detail


def test_several_attacks_that_found_nothing_share_one_sentence() -> None:
    one = evaluate(noise(0), digits())
    assert "by this attack" in verdict(Audit(evaluations={"a": one})).sentence
    assert "by any of the attacks that ran" in verdict(Audit(evaluations={"a": one, "b": one})).sentence


def test_an_audit_without_results_states_why() -> None:
    refused = Assessment(attack="a", applies=Applicability.DOES_NOT)
    stopped = Assessment(attack="b", applies=Applicability.APPLIES)
    assert "no attack applies" in verdict(Audit(evaluations={}, assessments=(refused,))).sentence
    assert "within the budget" in verdict(Audit(evaluations={}, assessments=(refused, stopped))).sentence
