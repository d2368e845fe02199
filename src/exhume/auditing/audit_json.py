"""The content of ``audit.json``."""

from dataclasses import asdict
from typing import Any

from exhume.core.json_values import to_json_value
from exhume.evaluation.audit_verdict import lead, verdict_of_audit
from exhume.records import Audit
from exhume.records.evaluation import SCHEMA_VERSION


def audit_to_json(audit: Audit) -> dict[str, Any]:
    """Return the audit as JSON values; ``docs/reference/audit-json.md`` explains every key.

    The keys of the gravest evaluation are at the top level, those of every evaluation under ``attacks``.
    """
    first = lead(audit)
    worst = verdict_of_audit(audit)
    evaluations = {name: evaluation.to_json() for name, evaluation in audit.evaluations.items()}
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": {"finding": worst.finding.value, "sentence": worst.sentence, "detail": worst.detail},
        "lead": first,
        "applicability": [to_json_value(asdict(one)) for one in audit.assessments],
        "start": None if audit.start is None else to_json_value(asdict(audit.start)),
        "tokens": None if audit.tokens is None else [to_json_value(asdict(one)) for one in audit.tokens],
        "prices": [to_json_value(asdict(price)) for price in audit.prices],
        "notes": to_json_value(audit.notes),
        "threat_model": to_json_value(audit.given),
        **({} if first is None else evaluations[first]),
        "attacks": evaluations,
    }
