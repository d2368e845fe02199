"""The content of ``audit.json``."""

import json

from exhume.auditing import audit_to_json
from exhume.evaluation import verdict
from exhume.records import Applicability, Assessment, Audit, Price, StartCandidate, StartEvidence
from tests.auditing.audited_networks import proven_audit


def test_the_keys_of_the_gravest_evaluation_are_at_the_top() -> None:
    audited = proven_audit()
    values = audit_to_json(audited)
    assert json.loads(json.dumps(values, allow_nan=False)) == values
    assert values["lead"] == "gate-certificate"
    assert values["verdict"]["sentence"] == verdict(audited).sentence
    top = {key: values[key] for key in values["attacks"]["gate-certificate"]}
    assert top == values["attacks"]["gate-certificate"]


def test_an_audit_without_results_has_everything_else() -> None:
    one = Assessment(attack="spade", applies=Applicability.DOES_NOT, reasons=("It is a spade.",))
    start = StartEvidence(
        candidates=(StartCandidate(name="seed 1", distance=0.1, correlation=0.9, log10_p=-40.0),), tried=3
    )
    price = Price(change="as trained", certified=None)
    values = audit_to_json(Audit(evaluations={}, assessments=(one,), start=start, prices=(price,), notes={"a": (1, 2)}))
    assert values["lead"] is None
    assert values["attacks"] == {}
    assert values["verdict"]["finding"] == "untested"
    assert values["applicability"][0]["reasons"] == ["It is a spade."]
    assert values["start"]["candidates"][0]["name"] == "seed 1"
    assert values["prices"][0]["certified"] is None
    assert values["notes"] == {"a": [1, 2]}
