"""The audit for machines: what ``audit.json`` holds."""

from dataclasses import asdict
from typing import Any

from exhume.evaluation.dossier import lead, overall
from exhume.records import Dossier
from exhume.records.audit import SCHEMA_VERSION, plain


def account(dossier: Dossier) -> dict[str, Any]:
    """Return the dossier as JSON values; ``docs/reference/audit-json.md`` explains every key.

    The keys of the gravest audit stand at the top, and those of every attack under ``attacks``.
    """
    first = lead(dossier)
    spoken = overall(dossier)
    audits = {name: audit.to_json() for name, audit in dossier.audits.items()}
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": {"finding": spoken.finding.value, "sentence": spoken.sentence, "detail": spoken.detail},
        "lead": first,
        "applicability": [plain(asdict(one)) for one in dossier.assessments],
        "start": None if dossier.start is None else plain(asdict(dossier.start)),
        "prices": [plain(asdict(price)) for price in dossier.prices],
        "notes": plain(dossier.notes),
        **({} if first is None else audits[first]),
        "attacks": audits,
    }
