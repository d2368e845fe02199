"""Audits as SARIF."""

import json

from exhume.auditing import Condition, sarif, write_sarif
from exhume.records import Applicability, Assessment, Audit
from tests.auditing.audited_networks import proven_audit


def test_sarif_has_a_result_for_each_condition_that_is_met_and_each_attack(tmp_path):
    audited = proven_audit()
    met = {condition: condition.is_met(audited) for condition in map(Condition.read, ("certified>0", "certified>99"))}
    write_sarif(tmp_path / "audit.sarif", audited, met, "models/final.pt")
    log = json.loads((tmp_path / "audit.sarif").read_text())
    assert log["version"] == "2.1.0"
    [run] = log["runs"]
    results = {result["ruleId"]: result for result in run["results"]}
    assert results.keys() <= {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert (results["condition"]["kind"], results["condition"]["level"]) == ("fail", "error")
    assert "certified>0" in results["condition"]["message"]["text"]
    assert len(run["results"]) == 1 + len({one.attack for one in audited.assessments} | set(audited.evaluations))
    assert (results["gate-certificate"]["kind"], results["gate-certificate"]["level"]) == ("fail", "error")
    assert results["weight-difference"]["kind"] == "notApplicable"
    for result in run["results"]:
        [location] = result["locations"]
        assert location["physicalLocation"]["artifactLocation"]["uri"] == "models/final.pt"
        assert result["message"]["text"]


def test_what_was_not_tested_is_no_problem_and_no_pass():
    one = Assessment(attack="spade", applies=Applicability.DOES_NOT, reasons=("There is a <convolution>.",))
    [result] = sarif(Audit(evaluations={}, assessments=(one,)), {}, "run")["runs"][0]["results"]
    assert (result["kind"], result["level"]) == ("notApplicable", "none")
    assert result["message"]["text"] == "There is a <convolution>."
