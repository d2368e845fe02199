"""Evaluation: the result of one attack, compared with the training data and with a hold-out set."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from exhume.core.json_values import to_json_value
from exhume.core.storage import add_prefix, load_bundle, save_bundle, select_prefix
from exhume.records.calibration import Calibration, Level, describe_ranks
from exhume.records.comparison import CERTIFIED_WITHIN, EXACT, Comparison
from exhume.records.reconstruction import Outcome, Reconstruction
from exhume.records.record import Bounds, Record, read_bounds, refuse_misfits, split_tensors

SCHEMA_VERSION = 1
"""Version of ``audit.json``: raised when a key changes its meaning or goes away, but not for a new key."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation(Record):
    """What an attack found, how near it came to the training data, and the same scores on held-out data.

    Where the data is unknown (``train`` is None), only what the attacker can prove is known.
    An evaluation holds training examples: protect its file as you protect the data.
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

    Some examples are near to anything (a black image). This score asks whether a candidate is nearer than every other
    real example, so one such example does not set the threshold for all.
    """
    confidence_auc: float | None = None
    """ROC AUC of the attacker's own confidence for good against bad candidates; None when all are of one kind."""
    matching: str = "greedy"
    given: Mapping[str, Any] = field(default_factory=dict)
    """The threat model: what the attacker held, as JSON values."""
    network: Mapping[str, float] = field(default_factory=dict)
    """Findings about the network itself: ``kernel_distance``, ``train_accuracy``, ``test_accuracy``."""
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def certified(self) -> int:
        """The number of candidates with a certificate."""
        return int(self.found.certified.sum())

    @property
    def false_certificates(self) -> int | None:
        """The number of certificates that match no training example; None when the data is unknown."""
        if self.train is None:
            return None
        return int((self.found.certified & (self.train.nearest_errors >= CERTIFIED_WITHIN)).sum())

    @property
    def certified_examples(self) -> int | None:
        """The number of training examples with a true certificate; None when the data is unknown."""
        return self._count_certified_within(CERTIFIED_WITHIN)

    @property
    def certified_exact(self) -> int | None:
        """The number of training examples recovered exactly, with a certificate; None when the data is unknown."""
        return self._count_certified_within(EXACT)

    @property
    def training_size_estimate(self) -> int | None:
        """The training set size that the attacker estimates; a lower bound unless :attr:`training_size_is_clear`."""
        estimate = self.found.diagnostics.get("training_size_estimate")
        return None if estimate is None else int(estimate)

    @property
    def training_size_is_clear(self) -> bool:
        """Whether the estimated training set size is the size itself and not only a lower bound."""
        return self.training_size_estimate is not None and bool(self.found.diagnostics.get("training_size_is_clear"))

    def _count_certified_within(self, tolerance: float) -> int | None:
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
            "training_size_is_clear": self.training_size_is_clear,
            "certified": self.certified,
            "certified_examples": self.certified_examples,
            "certified_exact": self.certified_exact,
            "false_certificates": self.false_certificates,
            "matching": self.matching,
            **_describe_scores(train),
            **_add_to_names("holdout_", _describe_scores(self.holdout)),
            **describe_ranks(self.calibration),
            **_add_to_names("relative_", describe_ranks(self.relative)),
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
        values, tensors = split_tensors(self)
        for name in [name for name in _PARTS if name in values]:
            values[name], part_tensors = split_tensors(values[name])
            if "levels" in values[name]:
                values[name]["levels"] = [asdict(level) for level in values[name]["levels"]]
            tensors |= add_prefix(name, part_tensors)
        save_bundle(Path(path), "evaluation", values, tensors)

    @classmethod
    def load(cls, path: Path | str) -> "Evaluation":
        """Load what :meth:`save` wrote."""
        values, tensors = load_bundle(Path(path), "evaluation", former_kind="audit")
        with refuse_misfits(path, "evaluation"):
            parts: dict[str, Any] = {
                name: values[name] | select_prefix(tensors, name) for name in _PARTS if name in values
            }
            return cls(**values | {name: _PARTS[name](part) for name, part in parts.items()} | _read_tuples(values))


def _read_reconstruction(part: dict[str, Any]) -> Reconstruction:
    return Reconstruction(**part | {"outcome": Outcome(part["outcome"])})


def _read_calibration(part: dict[str, Any]) -> Calibration:
    return Calibration(**part | {"levels": tuple(Level(**level) for level in part["levels"])})


def _read_tuples(values: dict[str, Any]) -> dict[str, Any]:
    features = values.get("features")
    return {
        "classes": tuple(values["classes"]),
        "features": None if features is None else tuple(features),
        "bounds": read_bounds(values.get("bounds")),
    }


_PARTS: dict[str, Callable[[dict[str, Any]], Record]] = {
    "found": _read_reconstruction,
    "train": lambda part: Comparison(**part),
    "holdout": lambda part: Comparison(**part),
    "calibration": _read_calibration,
    "relative": _read_calibration,
}
"""Records within an evaluation, each with the function that rebuilds it from a file."""


def _describe_scores(compared: Comparison | None) -> dict[str, Any]:
    names = ("curve", "ssim", "ncc", "psnr", "max_error", "good", "fine", "exact", "similar", "pairs")
    return {name: None if compared is None else getattr(compared, name) for name in names}


def _add_to_names(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {prefix + name: value for name, value in values.items()}
