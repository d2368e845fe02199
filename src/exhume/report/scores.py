"""List the scores of an evaluation: each number, its meaning, and the same number on held-out data."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.evaluation.verdict import value_unit
from exhume.records import Calibration, Evaluation
from exhume.records.comparison import EXACT, FINE, GOOD, SIMILAR


@dataclass(frozen=True, kw_only=True)
class Score:
    """One row: a number on the training set and the same number on the held-out set."""

    name: str
    meaning: str
    trained: str
    held_out: str = "–"
    chance: str = ""
    """p-value of the number if the attack knew nothing; empty if unknown."""


def list_scores(evaluation: Evaluation) -> list[Score]:
    """Return the scores that an evaluation has, the strongest claims first."""
    rows = [_count_certified(evaluation)] if evaluation.certified else []
    train, null = evaluation.train, evaluation.holdout
    if train is None:
        return rows
    for name, meaning in (
        ("exact", f"no value is off by {EXACT:g} of {value_unit(evaluation)} or more"),
        ("fine", f"mean squared error per value below {FINE:g}"),
        ("good", f"mean squared error per value below {GOOD:g}"),
        ("similar", f"structural similarity above {SIMILAR:g}"),
    ):
        if getattr(train, name) is not None:
            held_out = "–" if null is None else format_number(getattr(null, name))
            trained = format_number(getattr(train, name))
            rows.append(Score(name=name, meaning=meaning, trained=trained, held_out=held_out))
    nearer = "nearer to a candidate than all but this fraction of held-out examples"
    rows += _list_ranks(evaluation.calibration, "nearer than", nearer)
    rows += _list_ranks(evaluation.relative, "stands out from", f"relative to the nearest other example, {nearer}")
    for name, meaning in (
        ("curve", "squared distance of matched pairs, median"),
        ("max_error", "largest error of any value, median"),
        ("ssim", "structural similarity, median"),
        ("ncc", "normalised cross-correlation, median"),
        ("psnr", "peak signal-to-noise ratio, median, dB"),
    ):
        trained_median = _median(getattr(train, name))
        if trained_median is not None:
            held_out = format_number(None if null is None else _median(getattr(null, name)))
            trained = format_number(trained_median)
            rows.append(Score(name=_NAMES[name], meaning=meaning, trained=trained, held_out=held_out))
    return rows


_NAMES = {"curve": "distance", "max_error": "largest error", "ssim": "SSIM", "ncc": "correlation", "psnr": "PSNR"}


def format_number(value: int | float | None) -> str:
    """Format a number for readers.

    >>> [format_number(value) for value in (0.000123456, 40, 1 / 3, math.inf, None)]
    ['0.000123', '40', '0.333', '∞', '–']
    """
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞"
    return str(value) if isinstance(value, int) else f"{value:.3g}"


def format_p_value(p_value: float) -> str:
    """Format a p-value, if small as the power of ten above it.

    >>> format_p_value(3e-14), format_p_value(0.0), format_p_value(0.02)
    ('p < 1e-13', 'p < 1e-300', 'p = 0.02')
    """
    if p_value > 1e-3:
        return f"p = {p_value:.2g}"
    exponent = -300
    while 10.0**exponent <= p_value:
        exponent += 1
    return f"p < 1e{exponent}"


def _count_certified(evaluation: Evaluation) -> Score:
    return Score(
        name="certified",
        meaning="has a certificate: a proof that needs no data",
        trained=format_number(evaluation.certified if evaluation.train is None else evaluation.certified_examples),
        held_out="–" if evaluation.train is None else f"{evaluation.false_certificates} unmatched",
    )


def _list_ranks(ranks: Calibration | None, claim: str, meaning: str) -> list[Score]:
    if ranks is None:
        return []
    resolved = {level.bound: level for level in reversed(ranks.levels)}  # a small hold-out set resolves no small rates
    return [
        Score(
            name=_rank_name(claim, level.fpr),
            meaning=f"{meaning}; {ranks.null_size} of them resolve a rate of {level.bound:.1%}, "
            f"and chance gives as many with probability {level.chance:.2g}",
            trained=format_number(level.recovered),
            held_out=format_number(level.holdout_recovered),
            chance=format_p_value(level.chance),
        )
        for level in reversed(resolved.values())
    ]


def _rank_name(claim: str, fpr: float) -> str:
    """Return the name of a count of ranks; a high rank does not imply similarity, so it is not called a recovery."""
    return f"{claim} {1 - fpr:.1%} of held out".replace(".0%", "%")


def _median(values: Float[Tensor, " pair"]) -> float | None:
    known = values[~values.isnan()]
    return None if len(known) == 0 else float(torch.median(known))
