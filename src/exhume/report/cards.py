"""Build the text, images and numbers that the page shows for each exhibit."""

import base64
import io
from typing import Any

from jaxtyping import Float
from PIL import Image
from torch import Tensor

from exhume.evaluation.verdict import is_recovery, plural
from exhume.records import Evaluation
from exhume.records.comparison import GOOD
from exhume.report.exhibits import Exhibit, are_images, to_pixels
from exhume.report.scores import format_number, format_p_value

MOST_COLUMNS = 60
"""Largest number of table columns shown per record."""


def build_card(exhibit: Exhibit, evaluation: Evaluation, attack: str, place: int) -> dict[str, Any]:
    """Return the template values of one exhibit; numbers stay numbers, so that the page can sort and filter by them."""
    columns = evaluation.features or tuple(f"value {place}" for place in range(exhibit.recovered.numel()))
    kind = _classify(exhibit)
    # A candidate counts as a recovery only where such matches are more than chance.
    is_shown = kind == "certified" or (kind == "good" and _has_recoveries(evaluation))
    sides = {
        "recovered" if is_shown or exhibit.example is None else "candidate": exhibit.recovered,
        "trained on": exhibit.original,
        "nearest held out": exhibit.nearest_held_out,
    }
    present = {word: values for word, values in sides.items() if values is not None}
    has_images = are_images(evaluation)
    return {
        "name": f"candidate {exhibit.candidate}"
        if exhibit.example is None
        else f"{plural(evaluation)[:-1]} {exhibit.example}",
        "attack": attack,
        "place": place,
        "example": exhibit.candidate if exhibit.example is None else exhibit.example,
        "label": exhibit.label,
        "kind": kind,
        "certified": exhibit.certified,
        "false": exhibit.has_false_certificate,
        "proof": _describe_certificate(exhibit, evaluation),
        "doubt": _describe_doubt(exhibit, evaluation),
        "sureness": exhibit.confidence,
        "confidence": format_number(exhibit.confidence),
        "mean_square": exhibit.mean_square,
        "max_error": exhibit.max_error,
        "error": None if exhibit.max_error is None else format_number(exhibit.max_error),
        "rank_p": exhibit.rank_p,
        "images": {word: encode_png(values, evaluation) for word, values in present.items()} if has_images else {},
        "rows": [] if has_images else [
            (column, *(format_number(float(values.flatten()[index])) for values in present.values()))
            for index, column in enumerate(columns[:MOST_COLUMNS])
        ],
        "sides": list(present),
        "columns_left_out": max(0, len(columns) - MOST_COLUMNS),
    }  # fmt: skip


def _classify(exhibit: Exhibit) -> str:
    """Return the kind of an exhibit for the filter: certified, falsely certified, good, or other."""
    if exhibit.certified:
        return "false" if exhibit.has_false_certificate else "certified"
    return "good" if exhibit.mean_square is not None and exhibit.mean_square < GOOD else "other"


def _describe_certificate(exhibit: Exhibit, evaluation: Evaluation) -> str | None:
    if not exhibit.certified:
        return None
    if exhibit.has_false_certificate:
        return f"certificate that matches none of the training {plural(evaluation)} given"
    p_value = "" if exhibit.certificate_p is None else f", {format_p_value(exhibit.certificate_p)}"
    return f"certified: this {plural(evaluation)[:-1]} was in the training set{p_value}"


def _describe_doubt(exhibit: Exhibit, evaluation: Evaluation) -> str | None:
    """Return why an exhibit is not proven; None where it is."""
    if exhibit.certified:
        return None
    if exhibit.doubt:
        return f"not proven: {exhibit.doubt}"
    return None if evaluation.certified else "not proven: this attack gives no proofs"


def _has_recoveries(evaluation: Evaluation) -> bool:
    return evaluation.train is not None and is_recovery(evaluation.train, evaluation.holdout)


def encode_png(values: Float[Tensor, "..."], evaluation: Evaluation) -> str:
    """Return one image as a data URL."""
    buffer = io.BytesIO()
    Image.fromarray(to_pixels(values, evaluation.bounds)).save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
