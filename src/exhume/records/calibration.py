"""How far training examples stand out from held-out ones."""

import math
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from exhume.records.record import Record


@dataclass(frozen=True, kw_only=True)
class Level:
    """What counts as recovered at one false-positive rate, and how far the hold-out set supports that rate."""

    fpr: float
    """The rate asked for: at most this fraction of held-out examples lies nearer."""
    recovered: int
    """Training examples nearer to a candidate than all but this fraction of held-out examples."""
    holdout_recovered: int
    """The same with the two sets exchanged: a draw from the null."""
    bound: float
    """Upper bound of the false-positive rate that the hold-out set supports; above ``fpr`` when that set is small."""
    chance: float
    """The probability of at least this many recovered examples if the attack knew nothing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration(Record):
    """Ranks of training examples among held-out ones by a score that is small for what was recovered."""

    scores: Float[Tensor, " example"]
    """Score per training example; infinite where no candidate is near."""
    p_values: Float[Tensor, " example"]
    """P-value per training example under the null that it is one more held-out example."""
    false_positive_rates: Float[Tensor, " point"]
    true_positive_rates: Float[Tensor, " point"]
    """Together with the rates above, the ROC."""
    auc: float
    null_size: int
    """The number of held-out examples that the ranks are taken among."""
    levels: tuple[Level, ...]

    @property
    def smallest_fpr(self) -> float:
        """The smallest false-positive rate that this number of held-out examples can resolve."""
        return 1 / (self.null_size + 1)

    def level(self, fpr: float) -> Level:
        """Return the level at one of the rates that were evaluated."""
        return next(level for level in self.levels if math.isclose(level.fpr, fpr))


RANKS = (
    "p_values", "recovered_at_fpr", "holdout_recovered_at_fpr", "tpr_at_fpr", "fpr_bound", "chance", "smallest_fpr",
    "null_size", "auc", "roc",
)  # fmt: skip
"""Keys of ``audit.json`` that describe a calibration."""


def describe_ranks(calibration: Calibration | None) -> dict[str, Any]:
    """Return what ``audit.json`` holds about a calibration; None under every key where there is none."""
    if calibration is None:
        return dict.fromkeys(RANKS)
    by_rate = {f"{level.fpr:g}": level for level in calibration.levels}
    size = len(calibration.p_values)
    found = (
        calibration.p_values,
        {rate: level.recovered for rate, level in by_rate.items()},
        {rate: level.holdout_recovered for rate, level in by_rate.items()},
        {rate: level.recovered / size for rate, level in by_rate.items()},
        {rate: level.bound for rate, level in by_rate.items()},
        {rate: level.chance for rate, level in by_rate.items()},
        calibration.smallest_fpr,
        calibration.null_size,
        calibration.auc,
        {"fpr": calibration.false_positive_rates, "tpr": calibration.true_positive_rates},
    )
    return dict(zip(RANKS, found, strict=True))
