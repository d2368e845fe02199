"""Write the report as one self-contained page that opens offline and is safe, whatever text the data contains."""

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
from exhume.evaluation.verdict import Finding, describe_outcome, plural, verdict_of_evaluation
from exhume.records import Audit, Evaluation
from exhume.report.advice import recommend
from exhume.report.bench import load_bench
from exhume.report.cards import build_card, encode_png
from exhume.report.charts import embed_chart
from exhume.report.exhibits import are_images, select_exhibits
from exhume.report.pages import load_template
from exhume.report.risk import rank_risks
from exhume.report.scores import format_number, format_p_value, list_scores

MOST_SHOWN = 200
"""Largest number of recoveries per attack on a page; more would make it slow to open."""
MOST_RISKS = 500
"""Largest number of training examples in the table of risks."""


def report(found: Evaluation | Audit, path: Path | str) -> None:
    """Write an evaluation or an audit as one HTML page that opens offline.

    The page shows training examples: share it as you would share the data.
    """
    write_atomically(Path(path), render_page(found).encode())


def render_page(found: Evaluation | Audit) -> str:
    """Return the HTML of the report."""
    audit = Audit(evaluations={"": found}) if isinstance(found, Evaluation) else found
    first, result = lead(audit), verdict(audit)
    order = [] if first is None else [first, *(name for name in audit.evaluations if name != first)]
    return _TEMPLATE.render(
        audit=audit,
        evaluation=None if first is None else audit.evaluations[first],
        verdict=result,
        results=[_describe_result(name, audit.evaluations[name], place) for place, name in enumerate(order)],
        attacks=_list_attacks(audit),
        threat=_describe_threat_model(audit.given or ({} if first is None else audit.evaluations[first].given)),
        risks=_summarise_risks(audit, first),
        advice=recommend(audit, result.finding),
        bench=load_bench() if result.finding in _SERIOUS else None,
        name=_name_network(audit, first),
        format_number=format_number,
        format_p_value=format_p_value,
        describe_outcome=describe_outcome,
        shows_recoveries=result.finding in (Finding.PROVEN, Finding.RECOVERED),
        script=Markup(_SCRIPT),
        script_hash=_SCRIPT_HASH,
    )


_TILES = ("exact", "certified", "good", "nearer than 99% of held out", "similar")
_SERIOUS = (Finding.PROVEN, Finding.UNMATCHED, Finding.RECOVERED, Finding.TRACES)
_SHOWN_ELSEWHERE = (
    "doubts",
    "training_size_doubt",
    "training_size_is_clear",
    "stopped_at",
    "seconds_needed",
    "stages_left",
)
"""Diagnostics that the verdict, the cards or the list of attacks state in words."""
_SEPARATORS = {"input shape": " × ", "value range": " to "}
_SCRIPT = (files("exhume.report") / "page.js").read_text()
_SCRIPT_HASH = "sha256-" + base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
"""Hash of the script; the content security policy of the page allows no other."""

_TEMPLATE = load_template("exhume.report", "template.html")


def _describe_result(name: str, evaluation: Evaluation, place: int) -> dict[str, Any]:
    """Return everything that the page shows about one attack."""
    shown, rows = select_exhibits(evaluation), {score.name: score for score in list_scores(evaluation)}
    return {
        "name": name,
        "id": f"attack-{place}",
        "evaluation": evaluation,
        "found": evaluation.found,
        "things": plural(evaluation),
        "verdict": verdict_of_evaluation(evaluation),
        "scores": list(rows.values()),
        "tiles": [rows[tile] for tile in _TILES if tile in rows][:4],
        "pictures": are_images(evaluation),
        "cards": [build_card(exhibit, evaluation, name, place) for place, exhibit in enumerate(shown[:MOST_SHOWN])],
        "left_out": max(0, len(shown) - MOST_SHOWN),
        "charts": {
            kind: embed_chart(kind, evaluation, label=label, prefix=f"{kind}{place}")
            for kind, label in _describe_charts(evaluation)
        },
        "about_network": _describe_network(evaluation),
        "diagnostics": {
            name.replace("_", " "): _format_value(value)
            for name, value in evaluation.found.diagnostics.items()
            if _is_short(value) and name not in _SHOWN_ELSEWHERE
        },
    }


def _describe_charts(evaluation: Evaluation) -> list[tuple[str, str]]:
    """Describe what each figure shows, for screen readers."""
    train, null = evaluation.train, evaluation.holdout
    counts = "" if train is None else f" Training examples below the line marked good: {train.good} of {len(train)}."
    held = "" if null is None else f" Held out: {null.good} of {len(null)}."
    areas = "" if evaluation.calibration is None or evaluation.relative is None else (
        f" ROC AUC {evaluation.calibration.auc:.3f}; by distances relative to the nearest other example, "
        f"{evaluation.relative.auc:.3f}."
    )  # fmt: skip
    gap = f", with a gap after {evaluation.training_size_estimate}" if evaluation.training_size_is_clear else ""
    return [
        ("curve", "Reconstruction curve: squared distance of each matched training example, ascending, against the "
         f"same for held-out examples.{counts}{held}"),
        ("roc", f"ROC curve: training against held-out examples by the distance to the nearest candidate.{areas}"),
        ("spectrum", f"Singular values of the first layer's weight change, in descending order{gap}."),
    ]  # fmt: skip


def _list_attacks(audit: Audit) -> list[dict[str, Any]]:
    """Return one row per attack: whether it applies, whether it ran, and what it found."""
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


def _name_network(audit: Audit, first: str | None) -> str:
    """Return what the page calls the network: its name on the command line, else its kind, else the data."""
    given = audit.given if first is None else audit.evaluations[first].given
    data = "" if first is None else audit.evaluations[first].dataset
    kind = str(given.get("architecture") or "").partition("(")[0]
    return str(audit.notes.get("model") or kind or data)


def _describe_threat_model(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "held": [name for name, value in given.items() if value is True],
        "withheld": [name for name, value in given.items() if value is False],
        "known": {
            name: _format_value(value, _SEPARATORS.get(name, ", "))
            for name, value in given.items()
            if not isinstance(value, bool)
        },
    }


def _summarise_risks(audit: Audit, first: str | None) -> dict[str, Any]:
    rows = rank_risks(audit.evaluations)
    train = None if first is None else audit.evaluations[first].train
    thumbs: dict[int, str] = {}
    if first is not None and train is not None and are_images(audit.evaluations[first]):
        thumbs = {
            row.example: encode_png(train.examples[row.example], audit.evaluations[first]) for row in rows[:MOST_RISKS]
        }
    return {
        "rows": rows[:MOST_RISKS],
        "counts": {
            word: sum(row.risk.value == word for row in rows) for word in dict.fromkeys(r.risk.value for r in rows)
        },
        "thumbs": thumbs,
        "left_out": max(0, len(rows) - MOST_RISKS),
    }


def _describe_network(evaluation: Evaluation) -> dict[str, str]:
    size = "" if evaluation.training_size_is_clear else ", at least"
    facts = {
        f"training examples that the weights show{size}": evaluation.training_size_estimate,
        "kernel distance over training": evaluation.network.get("kernel_distance"),
        "accuracy on training data": evaluation.network.get("train_accuracy"),
        "accuracy on test data": evaluation.network.get("test_accuracy"),
        "ROC AUC of the attacker's confidence": evaluation.confidence_auc,
    }
    return {name: format_number(value) for name, value in facts.items() if value is not None}


def _is_short(value: Any) -> bool:
    return len(json.dumps(value)) <= 120


def _format_value(value: Any, separator: str = ", ") -> str:
    """Format a JSON value for readers."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_format_value(item)}" for key, item in value.items()) or "nothing"
    if isinstance(value, list | tuple):
        return separator.join(_format_value(item) for item in value)
    return str(value)
