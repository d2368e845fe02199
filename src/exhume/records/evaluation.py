"""The verdict's evidence: what was found, beside the truth and beside the null."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from exhume.core.json_values import to_json_value
from exhume.core.storage import add_prefix, load_bundle, save_bundle, select_prefix
from exhume.records.comparison import CERTIFIED_WITHIN, EXACT, Comparison
from exhume.records.reconstruction import Outcome, Reconstruction
from exhume.records.record import Bounds, Record, fits, pair

SCHEMA_VERSION = 1
"""Of ``audit.json``; a key that changes its meaning or goes away raises it, a new key does not."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """What counts as recovered at one false-positive rate, and how far the held-out set vouches for that rate."""

    fpr: float
    """The rate asked for: at most this fraction of held-out examples lies nearer."""
    recovered: int
    """Training examples nearer to a candidate than all but this fraction of held-out examples."""
    holdout_recovered: int
    """The same with the two sets exchanged: a draw from the null."""
    bound: float
    """The false-positive rate the held-out set can vouch for; above ``fpr`` when that set is small."""
    chance: float
    """The probability of so many recovered examples, or more, if the attack knew nothing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration(Record):
    """How far training examples stand out from held-out ones by a score that is small for what was recovered."""

    scores: Float[Tensor, " example"]
    """Of each training example, what the ranks are taken of; infinite where nothing is near."""
    p_values: Float[Tensor, " example"]
    """Of each training example, under the null that it is one more held-out example."""
    false_positive_rates: Float[Tensor, " point"]
    true_positive_rates: Float[Tensor, " point"]
    """Together with the rates above, the ROC."""
    auc: float
    null_size: int
    """How many held-out examples the ranks are taken among."""
    levels: tuple[Level, ...]

    @property
    def smallest_fpr(self) -> float:
        """The smallest false-positive rate that so many held-out examples can resolve."""
        return 1 / (self.null_size + 1)

    def level(self, fpr: float) -> Level:
        """Return the level at one of the rates that were evaluated."""
        return next(level for level in self.levels if math.isclose(level.fpr, fpr))


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation(Record):
    """What an attack found, how near it came to the training data, and the same scores on data nobody trained on.

    Where the data is unknown (``train`` is None), what the attacker proves is all there is.
    An audit holds training examples: keep its file as you keep the data.
    """

    found: Reconstruction
    dataset: str | None = None
    classes: tuple[str, ...] = ()
    features: tuple[str, ...] | None = None
    bounds: Bounds | None = None
    train: Comparison | None = None
    holdout: Comparison | None = None
    calibration: Calibration | None = None
    """Ranks of the distance to the nearest candidate; None when the data is unknown or nothing was held out."""
    relative: Calibration | None = None
    """Ranks of the same distance divided by the distance to the nearest other real example.

    Some examples are near to anything (a black picture); this asks whether a candidate is nearer than the rest of the
    world is, so one such example does not set the bar for all.
    """
    confidence_auc: float | None = None
    """How well the attacker's own confidence tells good candidates from bad; None when all are of one kind."""
    matching: str = "greedy"
    given: Mapping[str, Any] = field(default_factory=dict)
    """The threat model: what the attacker held, as JSON values."""
    network: Mapping[str, float] = field(default_factory=dict)
    """Findings about the network itself: ``kernel_distance``, ``train_accuracy``, ``test_accuracy``."""
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def certified(self) -> int:
        """How many candidates carry a proof."""
        return int(self.found.certified.sum())

    @property
    def false_certificates(self) -> int | None:
        """How many proofs match none of the training examples given; None when the data is unknown."""
        if self.train is None:
            return None
        return int((self.found.certified & (self.train.nearest_errors >= CERTIFIED_WITHIN)).sum())

    @property
    def certified_examples(self) -> int | None:
        """How many training examples have a true proof; None when the data is unknown."""
        return self._proven_within(CERTIFIED_WITHIN)

    @property
    def certified_exact(self) -> int | None:
        """How many training examples were recovered exactly and with a proof; None when the data is unknown."""
        return self._proven_within(EXACT)

    @property
    def training_size_estimate(self) -> int | None:
        """How many training examples the attacker believes there were."""
        estimate = self.found.diagnostics.get("training_size_estimate")
        return None if estimate is None else int(estimate)

    def _proven_within(self, tolerance: float) -> int | None:
        if self.train is None:
            return None
        true = self.found.certified & (self.train.nearest_errors < tolerance)
        return len(set(self.train.nearest_examples[true].tolist()))

    def to_json(self) -> dict[str, Any]:
        """Return what ``audit.json`` holds, for machines; ``docs/reference/audit-json.md`` explains every key."""
        found, train = self.found, self.train
        findings = {
            "schema_version": SCHEMA_VERSION,
            "dataset": self.dataset,
            "attack": found.attack,
            "seed": found.seed,
            "seconds": found.seconds,
            "outcome": found.outcome.value,
            "message": found.message,
            "candidates": len(found),
            "training_size": None if train is None else len(train),
            "holdout_size": None if self.holdout is None else len(self.holdout),
            "training_size_estimate": self.training_size_estimate,
            "certified": self.certified,
            "certified_examples": self.certified_examples,
            "certified_exact": self.certified_exact,
            "false_certificates": self.false_certificates,
            "matching": self.matching,
            **_scores(train, ""),
            **_scores(self.holdout, "holdout_"),
            **_ranks(self.calibration, ""),
            **_ranks(self.relative, "relative_"),
            "confidence_auc": self.confidence_auc,
            "candidate_confidence": found.confidence,
            "candidate_certified": found.certified,
            "candidate_p_values": found.p_values,
            "candidate_nearest": None if train is None else train.nearest_examples,
            "candidate_max_error": None if train is None else train.nearest_errors,
            "kernel_distance": self.network.get("kernel_distance"),
            "train_accuracy": self.network.get("train_accuracy"),
            "test_accuracy": self.network.get("test_accuracy"),
            "threat_model": self.given,
            "diagnostics": found.diagnostics,
            "versions": self.versions,
        }
        return {key: to_json_value(value) for key, value in findings.items()}

    def save(self, path: Path | str) -> None:
        """Save as one file, training examples included."""
        values, tensors = _split(self)
        for name in _PARTS:
            part: Record | None = values.pop(name, None)
            if part is not None:
                values[name], part_tensors = _split(part)
                tensors |= add_prefix(name, part_tensors)
        save_bundle(Path(path), "evaluation", values, tensors)

    @classmethod
    def load(cls, path: Path | str) -> "Evaluation":
        """Load what :meth:`save` wrote."""
        values, tensors = load_bundle(Path(path), "evaluation")
        with fits(path, "evaluation"):
            parts: dict[str, Any] = {
                name: values[name] | select_prefix(tensors, name) for name in _PARTS if name in values
            }
            return cls(**values | {name: _PARTS[name](part) for name, part in parts.items()} | _tuples(values))


def _reconstruction(part: dict[str, Any]) -> Reconstruction:
    return Reconstruction(**part | {"outcome": Outcome(part["outcome"])})


def _comparison(part: dict[str, Any]) -> Comparison:
    return Comparison(**part)


def _calibration(part: dict[str, Any]) -> Calibration:
    return Calibration(**part | {"levels": tuple(Level(**level) for level in part["levels"])})


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    features = values.get("features")
    return {
        "classes": tuple(values["classes"]),
        "features": None if features is None else tuple(features),
        "bounds": pair(values.get("bounds")),
    }


_PARTS: dict[str, Callable[[dict[str, Any]], Record]] = {
    "found": _reconstruction,
    "train": _comparison,
    "holdout": _comparison,
    "calibration": _calibration,
    "relative": _calibration,
}


def _scores(beside: Comparison | None, prefix: str) -> dict[str, Any]:
    names = ("curve", "ssim", "ncc", "psnr", "max_error", "good", "fine", "exact", "similar", "pairs")
    return {prefix + name: None if beside is None else getattr(beside, name) for name in names}


def _ranks(calibration: Calibration | None, prefix: str) -> dict[str, Any]:
    return {prefix + name: None if calibration is None else read(calibration) for name, read in _RANKS.items()}


def _by_rate(read: Callable[[Level], float]) -> Callable[[Calibration], dict[str, float]]:
    return lambda calibration: {f"{level.fpr:g}": read(level) for level in calibration.levels}


_RANKS: dict[str, Callable[[Calibration], Any]] = {
    "p_values": lambda calibration: calibration.p_values,
    "recovered_at_fpr": _by_rate(lambda level: level.recovered),
    "holdout_recovered_at_fpr": _by_rate(lambda level: level.holdout_recovered),
    "tpr_at_fpr": lambda calibration: {
        f"{level.fpr:g}": level.recovered / len(calibration.p_values) for level in calibration.levels
    },
    "fpr_bound": _by_rate(lambda level: level.bound),
    "chance": _by_rate(lambda level: level.chance),
    "smallest_fpr": lambda calibration: calibration.smallest_fpr,
    "null_size": lambda calibration: calibration.null_size,
    "auc": lambda calibration: calibration.auc,
    "roc": lambda calibration: {
        "fpr": calibration.false_positive_rates,
        "tpr": calibration.true_positive_rates,
    },
}


def _split(record: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    every = {f.name: getattr(record, f.name) for f in fields(record)}
    tensors = {name: value for name, value in every.items() if isinstance(value, Tensor)}
    values = {name: value for name, value in every.items() if name not in tensors and value is not None}
    if isinstance(record, Calibration):
        values["levels"] = [asdict(level) for level in record.levels]
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()}, tensors
