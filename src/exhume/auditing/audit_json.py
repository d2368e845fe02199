"""The audit for machines: what ``audit.json`` holds."""

from dataclasses import asdict
from typing import Any

from exhume.core.json_values import to_json_value
from exhume.evaluation.audit_verdict import lead, verdict_of_audit
from exhume.records import Audit
from exhume.records.evaluation import SCHEMA_VERSION


def audit_to_json(audit: Audit) -> dict[str, Any]:
    """Return the dossier as JSON values; ``docs/reference/audit-json.md`` explains every key.

    The keys of the gravest audit stand at the top, and those of every attack under ``attacks``.
    """
    first = lead(audit)
    spoken = verdict_of_audit(audit)
    evaluations = {name: evaluation.to_json() for name, evaluation in audit.evaluations.items()}
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": {"finding": spoken.finding.value, "sentence": spoken.sentence, "detail": spoken.detail},
        "lead": first,
        "applicability": [to_json_value(asdict(one)) for one in audit.assessments],
        "start": None if audit.start is None else to_json_value(asdict(audit.start)),
        "prices": [to_json_value(asdict(price)) for price in audit.prices],
        "notes": to_json_value(audit.notes),
        **({} if first is None else evaluations[first]),
        "attacks": evaluations,
    }
