"""Select what a report shows: each recovery beside the training example that it reveals."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, UInt8
from torch import Tensor

from exhume.evaluation.verdict import list_doubts
from exhume.records import Evaluation
from exhume.records.comparison import CERTIFIED_WITHIN
from exhume.records.record import Bounds


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """One recovery, its training example, and the nearest held-out example."""

    candidate: int
    recovered: Float[Tensor, "..."]
    confidence: float
    certified: bool
    certificate_p: float | None = None
    """p-value of the certificate, if the attack gives one."""
    example: int | None = None
    """Index of the training example; None if the data is unknown."""
    original: Float[Tensor, "..."] | None = None
    nearest_held_out: Float[Tensor, "..."] | None = None
    """The nearest held-out example."""
    label: str | None = None
    mean_square: float | None = None
    max_error: float | None = None
    rank_p: float | None = None
    """p-value of the training example's rank among held-out examples."""
    doubt: str = ""
    """Why it is not certified, where the attack says so."""
    relative_distance: float = 0.0
    """Distance to the training example relative to the distance to the nearest other example; small is convincing."""

    @property
    def has_false_certificate(self) -> bool:
        """Whether the certificate matches no given training example."""
        return self.certified and self.max_error is not None and self.max_error >= CERTIFIED_WITHIN


def select_exhibits(evaluation: Evaluation) -> list[Exhibit]:
    """Return what to show: certified recoveries first, then the most convincing first.

    A certified candidate is shown with its nearest training example, every other training example with the candidate
    it was matched with. Distances are relative to the nearest other example, so that a face comes before a black
    image. Without data the candidates are shown alone, by decreasing confidence.
    """
    found, train = evaluation.found, evaluation.train
    certified = found.certified.nonzero()[:, 0].tolist()
    if train is None:
        rest = [c for c in found.confidence.argsort(descending=True, stable=True).tolist() if not found.certified[c]]
        return [_show_candidate(evaluation, candidate) for candidate in certified + rest]
    proven = [(c, e) for c in certified if (e := int(train.nearest_examples[c])) >= 0]
    shown = {example for _, example in proven}
    matched = [(c, e) for c, e in train.pairs.tolist() if not found.certified[c] and e not in shown]
    pairs = [_show_pair(evaluation, candidate, example) for candidate, example in proven + matched]
    return sorted(pairs, key=lambda one: (not one.certified, one.relative_distance, one.mean_square))


def _show_candidate(evaluation: Evaluation, candidate: int) -> Exhibit:
    found = evaluation.found
    return Exhibit(
        candidate=candidate,
        recovered=found.inputs[candidate],
        confidence=float(found.confidence[candidate]),
        certified=bool(found.certified[candidate]),
        doubt=list_doubts(evaluation)[candidate],
        certificate_p=None if found.p_values is None else _finite_or_none(float(found.p_values[candidate])),
    )


def _show_pair(evaluation: Evaluation, candidate: int, example: int) -> Exhibit:
    train, holdout, ranks = evaluation.train, evaluation.holdout, evaluation.relative
    assert train is not None
    if evaluation.found.certified[candidate]:
        square, error = train.nearest_distances[candidate], train.nearest_errors[candidate]
    else:
        row = int((train.pairs[:, 0] == candidate).nonzero()[0, 0])
        square, error = train.curve[row], train.max_error[row]
    nearest = holdout.examples[holdout.nearest_examples[candidate]] if holdout and len(holdout) else None
    label = int(train.labels[example])
    return Exhibit(
        **vars(_show_candidate(evaluation, candidate))
        | {
            "example": example,
            "original": train.examples[example],
            "nearest_held_out": nearest,
            "label": evaluation.classes[label] if label < len(evaluation.classes) else str(label),
            "mean_square": float(square) / max(1, train.examples[example].numel()),
            "max_error": float(error),
            "rank_p": None if ranks is None else float(ranks.p_values[example]),
            "relative_distance": 0.0 if ranks is None else float(ranks.scores[example]),
        }
    )


def are_images(evaluation: Evaluation) -> bool:
    """Return whether the inputs can be shown as images; inputs with one axis are rows of a table."""
    return evaluation.found.inputs.ndim in (3, 4) and min(evaluation.found.inputs.shape[-2:]) > 1


def to_pixels(values: Float[Tensor, "..."], bounds: Bounds | None) -> UInt8[np.ndarray, "height width rgb"]:
    """Return one image (channels first, or none) as bytes; values are clipped, unusual numbers of channels averaged."""
    low, high = bounds or (0.0, 1.0)
    image = values.double().numpy().reshape(-1, *values.shape[-2:])
    image = image if len(image) in (1, 3) else image.mean(0, keepdims=True)
    unit = np.clip(np.nan_to_num((image - low) / (high - low)), 0, 1)
    pixels = np.broadcast_to(unit, (3, *unit.shape[1:])).transpose(1, 2, 0)
    return np.round(255 * pixels).astype(np.uint8)


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
