"""Write the report as one self-contained page that opens offline and is safe, whatever names the data has."""

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup

from exhume.core.storage import write_atomically
from exhume.evaluation.audit_verdict import lead, verdict
from exhume.evaluation.verdict import Finding, plural, verdict_of_evaluation
from exhume.records import Audit, Evaluation
from exhume.report.advice import advice
from exhume.report.bench import bench
from exhume.report.cards import card, png
from exhume.report.charts import chart
from exhume.report.exhibits import exhibits, pictures
from exhume.report.pages import page_template
from exhume.report.risk import risks
from exhume.report.scores import number, scores

SHOWN_MOST = 200
"""Largest number of recoveries per attack on a page; more would make it slow to open."""
RISKS_MOST = 500
"""Largest number of training examples in the table of risks."""


def report(found: Evaluation | Audit, path: Path | str) -> None:
    """Write an evaluation or an audit as one HTML page that opens offline.

    The page shows training examples: share it as you would share the data.
    """
    write_atomically(Path(path), page(found).encode())


def page(found: Evaluation | Audit) -> str:
    """Return the HTML of the report."""
    audit = Audit(evaluations={"": found}) if isinstance(found, Evaluation) else found
    first, spoken = lead(audit), verdict(audit)
    order = [] if first is None else [first, *(name for name in audit.evaluations if name != first)]
    return _TEMPLATE.render(
        audit=audit,
        evaluation=None if first is None else audit.evaluations[first],
        verdict=spoken,
        acts=[_act(name, audit.evaluations[name], number) for number, name in enumerate(order)],
        attacks=_attacks(audit),
        threat=None if first is None else _threat(audit.evaluations[first]),
        risks=_risks(audit, first),
        advice=advice(audit, spoken.finding),
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
"""Hash of the script; the content security policy of the page allows no other."""

_TEMPLATE = page_template("exhume.report", "template.html")


def _act(name: str, evaluation: Evaluation, place: int) -> dict[str, Any]:
    """Return everything that the page shows about one attack."""
    shown, rows = exhibits(evaluation), {score.name: score for score in scores(evaluation)}
    return {
        "name": name,
        "id": f"attack-{place}",
        "evaluation": evaluation,
        "found": evaluation.found,
        "things": plural(evaluation),
        "verdict": verdict_of_evaluation(evaluation),
        "scores": list(rows.values()),
        "tiles": [rows[tile] for tile in _TILES if tile in rows][:4],
        "pictures": pictures(evaluation),
        "cards": [card(exhibit, evaluation, name, place) for place, exhibit in enumerate(shown[:SHOWN_MOST])],
        "left_out": max(0, len(shown) - SHOWN_MOST),
        "charts": {
            kind: chart(kind, evaluation, label=label, prefix=f"{kind}{place}") for kind, label in _labels(evaluation)
        },
        "about_network": _about_network(evaluation),
        "diagnostics": {
            name.replace("_", " "): _words(value)
            for name, value in evaluation.found.diagnostics.items()
            if _short(value)
        },
    }


def _labels(evaluation: Evaluation) -> list[tuple[str, str]]:
    """Say what each figure shows, for those who do not see it."""
    train, null = evaluation.train, evaluation.holdout
    counts = "" if train is None else f" Training examples below the line marked good: {train.good} of {len(train)}."
    held = "" if null is None else f" Held out: {null.good} of {len(null)}."
    areas = "" if evaluation.calibration is None or evaluation.relative is None else (
        f" Area {evaluation.calibration.auc:.3f}, measured by surroundings {evaluation.relative.auc:.3f}."
    )  # fmt: skip
    gap = f", with a gap after {evaluation.training_size_estimate}" if evaluation.training_size_estimate else ""
    return [
        ("curve", "Reconstruction curve: squared distance of each matched training example, ascending, against the "
         f"same for held-out examples.{counts}{held}"),
        ("roc", f"ROC curve: training against held-out examples by the distance to the nearest candidate.{areas}"),
        ("spectrum", f"Singular values of the change of the first layer, in descending order{gap}."),
    ]  # fmt: skip


def _attacks(audit: Audit) -> list[dict[str, Any]]:
    """Return a row for every attack that is known of: whether it applies, what became of it, what it found."""
    assessed = {one.attack: one for one in audit.assessments}
    names = [*assessed, *(name for name in audit.evaluations if name not in assessed)]
    return [
        {
            "name": name or "attack",
            "one": assessed.get(name),
            "evaluation": audit.evaluations.get(name),
            "sentence": verdict_of_evaluation(audit.evaluations[name]).sentence if name in audit.evaluations else None,
        }
        for name in names
    ]


def _threat(evaluation: Evaluation) -> dict[str, Any]:
    given = evaluation.given
    return {
        "held": [name for name, value in given.items() if value is True],
        "withheld": [name for name, value in given.items() if value is False],
        "known": {
            name: _words(value, _JOINTS.get(name, ", ")) for name, value in given.items() if not isinstance(value, bool)
        },
    }


def _risks(audit: Audit, first: str | None) -> dict[str, Any]:
    rows = risks(audit.evaluations)
    train = None if first is None else audit.evaluations[first].train
    thumbs: dict[int, str] = {}
    if first is not None and train is not None and pictures(audit.evaluations[first]):
        thumbs = {row.example: png(train.examples[row.example], audit.evaluations[first]) for row in rows[:RISKS_MOST]}
    return {
        "rows": rows[:RISKS_MOST],
        "counts": {
            word: sum(row.risk.value == word for row in rows) for word in dict.fromkeys(r.risk.value for r in rows)
        },
        "thumbs": thumbs,
        "left_out": max(0, len(rows) - RISKS_MOST),
    }


def _about_network(evaluation: Evaluation) -> dict[str, str]:
    facts = {
        "examples the weights tell of": evaluation.training_size_estimate,
        "kernel distance over training": evaluation.network.get("kernel_distance"),
        "accuracy on training data": evaluation.network.get("train_accuracy"),
        "accuracy on data never seen": evaluation.network.get("test_accuracy"),
        "area under the attacker's confidence": evaluation.confidence_auc,
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
