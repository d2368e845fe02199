"""The report as one page: self-contained, offline, and safe to open whatever the data is called."""

import base64
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from exhume.evaluation.verdict import plural, verdict
from exhume.records import Audit
from exhume.report import figures
from exhume.report.exhibits import Exhibit, exhibits, picture, pictures
from exhume.report.scores import below, number, scores
from exhume.storage import write_atomically

SHOWN_MOST = 200
"""Recoveries on a page; more would make it slow to open and say nothing new."""
COLUMNS_MOST = 60
"""Columns of a table shown for each record."""

# What each colour of the figures is called in the page's style, so that figures follow light and dark.
_THEME = {
    figures.INK: ("--ink", "#ece6dc"),
    figures.MUTED: ("--muted", "#a39b8f"),
    figures.GRID: ("--grid", "#3b3732"),
    figures.TRAINED: ("--trained", "#f28b5b"),
    figures.HELD_OUT: ("--held-out", "#8db8d8"),
}


def report(audit: Audit, path: Path | str) -> None:
    """Write the audit as one HTML page that opens offline.

    The page shows training examples: share it as you would share the data.
    """
    write_atomically(Path(path), page(audit).encode())


def page(audit: Audit) -> str:
    """Return the HTML of the report."""
    shown, rows = exhibits(audit), {score.name: score for score in scores(audit)}
    return _TEMPLATE.render(
        audit=audit,
        found=audit.found,
        things=plural(audit),
        verdict=verdict(audit),
        scores=rows.values(),
        tiles=[rows[name] for name in _TILES if name in rows][:4],
        pictures=pictures(audit),
        exhibits=[_card(exhibit, audit) for exhibit in shown[:SHOWN_MOST]],
        left_out=max(0, len(shown) - SHOWN_MOST),
        figures={name: _figure(name, audit) for name in ("curve", "roc", "spectrum")},
        held=[name for name, value in audit.given.items() if value is True],
        withheld=[name for name, value in audit.given.items() if value is False],
        known={
            name: _words(value, _JOINTS.get(name, ", "))
            for name, value in audit.given.items()
            if not isinstance(value, bool)
        },
        about_network=_about_network(audit),
        diagnostics={name: _words(value) for name, value in audit.found.diagnostics.items() if _short(value)},
        theme={name: (light, dark) for light, (name, dark) in _THEME.items()},
    )


_TILES = ("certified", "exact", "good", "recovered at 1% false positives", "similar")
_JOINTS = {"input shape": " × ", "value range": " to "}

_TEMPLATE = jinja2.Environment(
    loader=jinja2.PackageLoader("exhume.report", "."),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
).get_template("template.html")


def _card(exhibit: Exhibit, audit: Audit) -> dict[str, Any]:
    """Return what the template says of one exhibit; numbers stay numbers for whoever sorts or filters the page."""
    name = f"candidate {exhibit.candidate}" if exhibit.example is None else f"{plural(audit)[:-1]} {exhibit.example}"
    columns = audit.features or tuple(f"value {place}" for place in range(exhibit.recovered.numel()))
    sides = {"recovered": exhibit.recovered, "trained on": exhibit.original, "nearest held out": exhibit.stranger}
    present = {word: values for word, values in sides.items() if values is not None}
    return {
        "name": name,
        "label": exhibit.label,
        "certified": exhibit.certified,
        "false": exhibit.false_certificate,
        "proof": _certificate(exhibit, audit),
        "confidence": number(exhibit.confidence),
        "mean_square": exhibit.mean_square,
        "max_error": exhibit.max_error,
        "error": None if exhibit.max_error is None else number(exhibit.max_error),
        "rank_p": exhibit.rank_p,
        "images": {word: _png(values, audit) for word, values in present.items()} if pictures(audit) else {},
        "rows": []
        if pictures(audit)
        else [
            (column, *(number(float(values.flatten()[place])) for values in present.values()))
            for place, column in enumerate(columns[:COLUMNS_MOST])
        ],
        "sides": list(present),
        "columns_left_out": max(0, len(columns) - COLUMNS_MOST),
    }


def _certificate(exhibit: Exhibit, audit: Audit) -> str | None:
    if not exhibit.certified:
        return None
    if exhibit.false_certificate:
        return "false certificate: nothing like it was in the training set"
    p_value = "" if exhibit.certificate_p is None else f", {below(exhibit.certificate_p)}"
    return f"certified: this {plural(audit)[:-1]} was in the training set{p_value}"


def _png(values: Float[Tensor, "..."], audit: Audit) -> str:
    buffer = io.BytesIO()
    Image.fromarray(picture(values, audit.bounds)).save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _figure(name: str, audit: Audit) -> str | None:
    """Return a figure as an image that carries its own light and dark colours; None when it has no material."""
    drawn = figures.FIGURES[name](audit)
    if drawn is None:
        return None
    svg = figures.render(drawn, "svg").decode()
    for light, (variable, _) in _THEME.items():
        svg = svg.replace(light, f"var({variable})")
    style = "".join(f"{variable}:{light};" for light, (variable, _) in _THEME.items())
    dark = "".join(f"{variable}:{dark};" for variable, dark in _THEME.values())
    sheet = (
        f"<style>svg{{{style}}}text{{font-family:system-ui,sans-serif!important}}"
        f"@media(prefers-color-scheme:dark){{svg{{{dark}}}}}</style>"
    )
    svg = svg.replace("<defs>", sheet + "<defs>", 1)
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


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
    return len(json.dumps(value)) <= 400


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
