"""Rank training examples by the most serious finding of any attack."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from exhume.records import Comparison, Evaluation
from exhume.records.comparison import CERTIFIED_WITHIN, GOOD


class Risk(StrEnum):
    """Risk levels of a training example, the most serious first."""

    PROVEN = "proven"
    """A candidate shows it and has a certificate."""
    SHOWN = "shown"
    """A candidate shows it, without a proof."""
    STANDS_OUT = "stands out"
    """Candidates are nearer to it than to almost all held-out examples."""
    NOT_SEEN = "not seen"


_ORDER = list(Risk)


@dataclass(frozen=True, kw_only=True)
class ExampleRisk:
    """One training example and the most serious finding of any attack about it."""

    example: int
    label: str
    risk: Risk
    attack: str
    mean_square: float
    """Mean squared error to the nearest candidate of that attack."""
    p_value: float | None
    """For a proven example the p-value of its certificate; else that of its rank among held-out examples."""
    is_least: bool = False
    """Whether no p-value of a rank among so many held-out examples can be smaller."""


def rank_risks(evaluations: Mapping[str, Evaluation]) -> list[ExampleRisk]:
    """Return every training example with its most serious finding, the most serious first; empty without data."""
    known = {name: evaluation for name, evaluation in evaluations.items() if evaluation.train is not None}
    if not known:
        return []
    every = [_rank_one_attack(name, evaluation) for name, evaluation in known.items()]
    sizes = {len(rows) for rows in every}
    worst = [min(rows, key=_severity) for rows in zip(*every, strict=True)] if len(sizes) == 1 else every[0]
    return sorted(worst, key=_severity)


def _rank_one_attack(name: str, evaluation: Evaluation) -> list[ExampleRisk]:
    train, ranks = evaluation.train, evaluation.relative
    assert train is not None
    proven = _certificate_p_values(evaluation, train)
    squares = (train.example_distances / max(1, train.examples[:1].numel())).tolist()
    p_values = None if ranks is None else ranks.p_values.tolist()
    cut = 0.0 if ranks is None else max(ranks.levels[0].fpr, ranks.levels[0].bound)
    rows = []
    for example, square in enumerate(squares):
        rank_p = None if p_values is None else p_values[example]
        p_value = proven.get(example, rank_p)
        risk = Risk.NOT_SEEN
        if example in proven:
            risk = Risk.PROVEN
        elif square < GOOD:
            risk = Risk.SHOWN
        elif rank_p is not None and rank_p <= cut + 1e-12:
            risk = Risk.STANDS_OUT
        label = int(train.labels[example])
        rows.append(
            ExampleRisk(
                example=example,
                label=evaluation.classes[label] if label < len(evaluation.classes) else str(label),
                risk=risk,
                attack=name,
                mean_square=square,
                p_value=p_value,
                is_least=risk is not Risk.PROVEN and ranks is not None and rank_p == ranks.smallest_fpr,
            )
        )
    return rows


def _certificate_p_values(evaluation: Evaluation, train: Comparison) -> dict[int, float | None]:
    """Return the smallest p-value of a true certificate per proven example; None where the attack gives none."""
    found, proven = evaluation.found, dict[int, float | None]()
    is_true = found.certified & (train.nearest_errors < CERTIFIED_WITHIN)
    for candidate in is_true.nonzero()[:, 0].tolist():
        example = int(train.nearest_examples[candidate])
        p_value = None if found.p_values is None else float(found.p_values[candidate])
        known = proven.get(example)
        proven[example] = p_value if known is None or p_value is None else min(known, p_value)
    return proven


def _severity(row: ExampleRisk) -> tuple[int, float]:
    return _ORDER.index(row.risk), row.mean_square
