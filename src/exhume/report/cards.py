"""The text, images and numbers that the page shows for each exhibit."""

import base64
import io
from typing import Any

from jaxtyping import Float
from PIL import Image
from torch import Tensor

from exhume.evaluation.verdict import plural
from exhume.records import Evaluation
from exhume.records.comparison import GOOD
from exhume.report.exhibits import Exhibit, picture, pictures
from exhume.report.scores import format_p_value, number

COLUMNS_MOST = 60
"""Largest number of table columns shown per record."""


def card(exhibit: Exhibit, evaluation: Evaluation, attack: str, place: int) -> dict[str, Any]:
    """Return the template values of one exhibit; numbers stay numbers, so that the page can sort and filter by them."""
    columns = evaluation.features or tuple(f"value {place}" for place in range(exhibit.recovered.numel()))
    sides = {"recovered": exhibit.recovered, "trained on": exhibit.original, "nearest held out": exhibit.stranger}
    present = {word: values for word, values in sides.items() if values is not None}
    are_pictures = pictures(evaluation)
    return {
        "name": f"candidate {exhibit.candidate}"
        if exhibit.example is None
        else f"{plural(evaluation)[:-1]} {exhibit.example}",
        "attack": attack,
        "place": place,
        "example": exhibit.candidate if exhibit.example is None else exhibit.example,
        "label": exhibit.label,
        "kind": _kind(exhibit),
        "certified": exhibit.certified,
        "false": exhibit.false_certificate,
        "proof": _certificate(exhibit, evaluation),
        "sureness": exhibit.confidence,
        "confidence": number(exhibit.confidence),
        "mean_square": exhibit.mean_square,
        "max_error": exhibit.max_error,
        "error": None if exhibit.max_error is None else number(exhibit.max_error),
        "rank_p": exhibit.rank_p,
        "images": {word: png(values, evaluation) for word, values in present.items()} if are_pictures else {},
        "rows": [] if are_pictures else [
            (column, *(number(float(values.flatten()[index])) for values in present.values()))
            for index, column in enumerate(columns[:COLUMNS_MOST])
        ],
        "sides": list(present),
        "columns_left_out": max(0, len(columns) - COLUMNS_MOST),
    }  # fmt: skip


def _kind(exhibit: Exhibit) -> str:
    """Return the kind of an exhibit for the filter: certified, falsely certified, good, or other."""
    if exhibit.certified:
        return "false" if exhibit.false_certificate else "certified"
    return "good" if exhibit.mean_square is not None and exhibit.mean_square < GOOD else "other"


def _certificate(exhibit: Exhibit, evaluation: Evaluation) -> str | None:
    if not exhibit.certified:
        return None
    if exhibit.false_certificate:
        return f"certificate that matches none of the training {plural(evaluation)} given"
    p_value = "" if exhibit.certificate_p is None else f", {format_p_value(exhibit.certificate_p)}"
    return f"certified: this {plural(evaluation)[:-1]} was in the training set{p_value}"


def png(values: Float[Tensor, "..."], evaluation: Evaluation) -> str:
    """Return one image as a data URL."""
    buffer = io.BytesIO()
    Image.fromarray(picture(values, evaluation.bounds)).save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
