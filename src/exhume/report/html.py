"""The report as one page: self-contained, offline, and safe to open whatever the data is called."""

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup

from exhume.evaluation.dossier import lead, verdict
from exhume.evaluation.verdict import Finding, plural
from exhume.evaluation.verdict import verdict as verdict_of_one
from exhume.records import Audit, Dossier
from exhume.report.advice import advice
from exhume.report.bench import bench
from exhume.report.cards import card, png
from exhume.report.charts import chart
from exhume.report.exhibits import exhibits, pictures
from exhume.report.pages import page_template
from exhume.report.risk import risks
from exhume.report.scores import number, scores
from exhume.storage import write_atomically

SHOWN_MOST = 200
"""Recoveries of one attack on a page; more would make it slow to open and say nothing new."""
RISKS_MOST = 500
"""Training examples in the table of risks."""


def report(found: Audit | Dossier, path: Path | str) -> None:
    """Write an audit, or the dossier of all attacks on a network, as one HTML page that opens offline.

    The page shows training examples: share it as you would share the data.
    """
    write_atomically(Path(path), page(found).encode())


def page(found: Audit | Dossier) -> str:
    """Return the HTML of the report."""
    dossier = Dossier(audits={"": found}) if isinstance(found, Audit) else found
    first, spoken = lead(dossier), verdict(dossier)
    order = [] if first is None else [first, *(name for name in dossier.audits if name != first)]
    return _TEMPLATE.render(
        dossier=dossier,
        audit=None if first is None else dossier.audits[first],
        verdict=spoken,
        acts=[_act(name, dossier.audits[name], number) for number, name in enumerate(order)],
        attacks=_attacks(dossier),
        threat=None if first is None else _threat(dossier.audits[first]),
        risks=_risks(dossier, first),
        advice=advice(dossier, spoken.finding),
        bench=bench() if spoken.finding in _GRAVE else None,
        number=number,
        script=Markup(_SCRIPT),
        script_hash=_SCRIPT_HASH,
    )


_TILES = ("certified", "exact", "good", "nearer than 99% of held out", "similar")
_GRAVE = (Finding.PROVEN, Finding.UNMATCHED, Finding.RECOVERED, Finding.TRACES)
_JOINTS = {"input shape": " × ", "value range": " to "}
_SCRIPT = (files("exhume.report") / "page.js").read_text()
_SCRIPT_HASH = "sha256-" + base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
"""The page's policy lets this one script run and no other."""

_TEMPLATE = page_template("exhume.report", "template.html")


def _act(name: str, audit: Audit, place: int) -> dict[str, Any]:
    """Return everything the page shows of one attack."""
    shown, rows = exhibits(audit), {score.name: score for score in scores(audit)}
    return {
        "name": name,
        "id": f"attack-{place}",
        "audit": audit,
        "found": audit.found,
        "things": plural(audit),
        "verdict": verdict_of_one(audit),
        "scores": list(rows.values()),
        "tiles": [rows[tile] for tile in _TILES if tile in rows][:4],
        "pictures": pictures(audit),
        "cards": [card(exhibit, audit, name, place) for place, exhibit in enumerate(shown[:SHOWN_MOST])],
        "left_out": max(0, len(shown) - SHOWN_MOST),
        "charts": {kind: chart(kind, audit, label=label, prefix=f"{kind}{place}") for kind, label in _labels(audit)},
        "about_network": _about_network(audit),
        "diagnostics": {
            name.replace("_", " "): _words(value) for name, value in audit.found.diagnostics.items() if _short(value)
        },
    }


def _labels(audit: Audit) -> list[tuple[str, str]]:
    """Say what each figure shows, for those who do not see it."""
    train, null = audit.train, audit.holdout
    counts = "" if train is None else f" Training examples below the line marked good: {train.good} of {len(train)}."
    held = "" if null is None else f" Held out: {null.good} of {len(null)}."
    areas = "" if audit.calibration is None or audit.relative is None else (
        f" Area {audit.calibration.auc:.3f}, measured by surroundings {audit.relative.auc:.3f}."
    )  # fmt: skip
    gap = f", with a gap after {audit.training_size_estimate}" if audit.training_size_estimate else ""
    return [
        ("curve", "Reconstruction curve: squared distance of each matched training example, ascending, against the "
         f"same for held-out examples.{counts}{held}"),
        ("roc", f"ROC of telling training from held-out examples by their distance to the nearest candidate.{areas}"),
        ("spectrum", f"Singular values of the change of the first layer, in descending order{gap}."),
    ]  # fmt: skip


def _attacks(dossier: Dossier) -> list[dict[str, Any]]:
    """Return a row for every attack that is known of: whether it applies, what became of it, what it found."""
    assessed = {one.attack: one for one in dossier.assessments}
    names = [*assessed, *(name for name in dossier.audits if name not in assessed)]
    return [
        {
            "name": name or "attack",
            "one": assessed.get(name),
            "audit": dossier.audits.get(name),
            "sentence": verdict_of_one(dossier.audits[name]).sentence if name in dossier.audits else None,
        }
        for name in names
    ]


def _threat(audit: Audit) -> dict[str, Any]:
    given = audit.given
    return {
        "held": [name for name, value in given.items() if value is True],
        "withheld": [name for name, value in given.items() if value is False],
        "known": {
            name: _words(value, _JOINTS.get(name, ", ")) for name, value in given.items() if not isinstance(value, bool)
        },
    }


def _risks(dossier: Dossier, first: str | None) -> dict[str, Any]:
    rows = risks(dossier.audits)
    train = None if first is None else dossier.audits[first].train
    thumbs: dict[int, str] = {}
    if first is not None and train is not None and pictures(dossier.audits[first]):
        thumbs = {row.example: png(train.examples[row.example], dossier.audits[first]) for row in rows[:RISKS_MOST]}
    return {
        "rows": rows[:RISKS_MOST],
        "counts": {
            word: sum(row.risk.value == word for row in rows) for word in dict.fromkeys(r.risk.value for r in rows)
        },
        "thumbs": thumbs,
        "left_out": max(0, len(rows) - RISKS_MOST),
    }


def _about_network(audit: Audit) -> dict[str, str]:
    facts = {
        "examples the weights tell of": audit.training_size_estimate,
        "kernel distance over training": audit.network.get("kernel_distance"),
        "accuracy on training data": audit.network.get("train_accuracy"),
        "accuracy on data never seen": audit.network.get("test_accuracy"),
        "area under the attacker's confidence": audit.confidence_auc,
    }
    return {name: number(value) for name, value in facts.items() if value is not None}


def _short(value: Any) -> bool:
    return len(json.dumps(value)) <= 120


def _words(value: Any, joint: str = ", ") -> str:
    """Write a JSON value as a person would."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_words(item)}" for key, item in value.items()) or "nothing"
    if isinstance(value, list | tuple):
        return joint.join(_words(item) for item in value)
    return str(value)
