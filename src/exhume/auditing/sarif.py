"""The audit as SARIF 2.1.0, which code-scanning dashboards can show."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from exhume.auditing.conditions import Condition
from exhume.core.storage import write_atomically
from exhume.evaluation.audit_verdict import verdict_of_audit
from exhume.evaluation.verdict import Finding, verdict_of_evaluation
from exhume.records import Audit
from exhume.version import __version__

LEVELS = {
    Finding.PROVEN: "error",
    Finding.UNMATCHED: "error",
    Finding.RECOVERED: "error",
    Finding.TRACES: "warning",
    Finding.UNPROVEN: "note",
}
"""How severe a finding is on a dashboard; other findings are no problems."""


def sarif(audit: Audit, conditions: Mapping[Condition, bool], artifact: str) -> dict[str, Any]:
    """Return the audit as a SARIF log with a result per condition that is met and per attack.

    An attack that found nothing is a pass, and one that did not run is not applicable, so that a dashboard shows what
    was not tested.

    Args:
        audit: the audit.
        conditions: the conditions of the pipeline, and whether each is met.
        artifact: path of the audited weights, relative to the repository where possible.
    """
    artifact = quote(Path(artifact).as_posix())
    worst = verdict_of_audit(audit)
    results = [
        _result("condition", f"The condition {condition.text} is met. {worst.sentence}", artifact, "fail", "error")
        for condition, is_met in conditions.items()
        if is_met
    ]
    assessed = {one.attack: one for one in audit.assessments}
    names = [*assessed, *(name for name in audit.evaluations if name not in assessed)]
    for name in names:
        if (evaluation := audit.evaluations.get(name)) is not None:
            verdict = verdict_of_evaluation(evaluation)
            level = LEVELS.get(verdict.finding)
            kind = "pass" if level is None else "fail"
            results.append(_result(name, f"{verdict.sentence} {verdict.detail}", artifact, kind, level or "none"))
        else:
            why = " ".join(assessed[name].reasons) or "Not run."
            results.append(_result(name, why, artifact, "notApplicable", "none"))
    rules = [
        {"id": "condition", "shortDescription": {"text": "A condition of --fail-if is met."}},
        *({"id": name, "shortDescription": {"text": f"The attack {name} on the released weights."}} for name in names),
    ]
    driver = {"name": "exhume", "version": __version__, "rules": rules}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }


def write_sarif(path: Path, audit: Audit, conditions: Mapping[Condition, bool], artifact: str) -> None:
    """Write the audit as SARIF, atomically."""
    write_atomically(path, json.dumps(sarif(audit, conditions, artifact), indent=2).encode() + b"\n")


def _result(rule: str, text: str, artifact: str, kind: str, level: str) -> dict[str, Any]:
    location = {"physicalLocation": {"artifactLocation": {"uri": artifact}}}
    return {"ruleId": rule, "kind": kind, "level": level, "message": {"text": text.strip()}, "locations": [location]}
