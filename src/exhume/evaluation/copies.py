"""Which examples of a synthetic set are copies of training examples, and what else does the set reveal about them?

A distilled image may look like its class without revealing a training example. It is a *copy* of one when three
conditions hold: it shows the example (a mean squared error below 0.01, and below half of that of the mean of all real
examples); it is nearer to the example than any other real example is; and that ratio of distances is below those of all
but 1 % of the held-out examples, which cannot have been copied. A training example *shows through noise* when the same
holds after the tenth of the values that fit worst is left out. Apart from copies, training examples may be nearer to
the set than held-out ones are: the number below the cut of 1 % is compared with chance.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhume.core.errors import DataError
from exhume.core.json_values import to_json_value
from exhume.core.text import count_noun
from exhume.evaluation.calibration import calibrate, recovered
from exhume.evaluation.comparison import compare, relative_distances
from exhume.evaluation.distances import UnitScale
from exhume.records import Calibration, Dataset, Split
from exhume.records.comparison import GOOD

COPY_FPR = 0.01
"""False-positive rate on held-out examples at which an example counts as a copy."""
NEARER_THAN_ANY = 1.0
"""Ratio of the distances to the copy and to the nearest other real example, below which a copy is possible."""
NOISE_SHARE = 0.1
"""Share of an example's values that noise may have replaced."""
BETTER_THAN_MEAN = 0.5
"""Largest squared error of a copy, as a share of that of the mean of all real examples. A faint image is near to any
faint photograph without showing it."""
BEYOND_CHANCE = 1e-3
"""Probability by chance below which a set is said to reveal its training examples."""


@dataclass(frozen=True, kw_only=True)
class Copies:
    """Which training examples were copied or are revealed, and how certain that is."""

    size: int
    """Number of synthetic examples."""
    training_size: int
    pairs: Int[Tensor, "copy 2"]
    """Synthetic example and the training example that it copies, nearest pair first."""
    distances: Float[Tensor, " copy"]
    """Squared distance per pair, summed over values, in units of the value range."""
    shown: Int[Tensor, "shown 2"]
    """As ``pairs``, for examples that show through noise, copies included."""
    held_out_copies: int
    """Synthetic examples that the same conditions make copies of held-out examples: a control, usually 0."""
    held_out_shown: int
    """The same control for examples that show through noise."""
    nearest: Int[Tensor, " synthetic"]
    """The nearest training example of each synthetic example, copied or not."""
    calibration: Calibration | None
    """Calibration of each training example's distance to the nearest synthetic example, relative to that to the nearest
    other real one; None without a hold-out set."""

    @property
    def copied(self) -> int:
        """Number of training examples that were copied."""
        return len(set(self.pairs[:, 1].tolist()))

    @property
    def copying(self) -> int:
        """Number of synthetic examples that are copies."""
        return len(self.pairs)

    @property
    def betrayed(self) -> int:
        """Number of training examples whose relative distance is below those of all but 1 % of held-out ones."""
        return 0 if self.calibration is None else self.calibration.level(COPY_FPR).recovered

    @property
    def chance(self) -> float:
        """Probability of as many revealed examples if training examples were no nearer than held-out ones."""
        return 1.0 if self.calibration is None else self.calibration.level(COPY_FPR).chance

    @property
    def is_safe(self) -> bool:
        """Whether nothing is copied, shows through noise or is revealed beyond chance; False without a hold-out set."""
        unseen = len(self.shown) <= self.held_out_shown
        return self.calibration is not None and self.copied == 0 and unseen and self.chance >= BEYOND_CHANCE

    @property
    def sentence(self) -> str:
        """The finding in a sentence or two."""
        if self.calibration is None:
            return "There is no hold-out set, so copies cannot be told from examples that only look alike."
        whole = f"{self.betrayed} of {self.training_size} training examples lie nearer than 99 % of held-out ones"
        beyond = (
            f"{whole}; chance gives as many with probability {self.chance:.0e}."
            if self.chance < BEYOND_CHANCE
            else f"{whole}, which chance explains."
        )
        more = len(self.shown) - self.copying
        through = f"; {more} {'more ' if self.copied else ''}show{'s' * (more == 1)} one through noise" if more else ""
        are, whose = "is a copy" if self.copying == 1 else "are copies", count_noun(self.copied, "training example")
        copies = (
            f"{self.copying} of {count_noun(self.size, 'distilled example')} {are} of {whose}"
            if self.copied
            else "No distilled example is a copy of a training example"
        )
        return f"{copies}{through}. {beyond}"

    def to_json(self) -> dict[str, Any]:
        """Return the finding as JSON values."""
        finding = {
            "distilled": self.size,
            "training_size": self.training_size,
            "copies": self.copying,
            "copied_examples": self.copied,
            "shown_through_noise": len(self.shown),
            "held_out_copies": self.held_out_copies,
            "held_out_shown_through_noise": self.held_out_shown,
            "betrayed_examples": self.betrayed,
            "chance": self.chance,
            "fpr": COPY_FPR,
            "is_safe": self.is_safe,
            "pairs": self.pairs,
            "shown_pairs": self.shown,
            "squared_distances": self.distances,
            "nearest_training_example": self.nearest,
            "sentence": self.sentence,
        }
        return {name: to_json_value(value) for name, value in finding.items()}


def find_copies(distilled: Dataset, data: Dataset) -> Copies:
    """Find what ``distilled`` reveals about the training examples of ``data``, with its held-out examples as control.

    Raises:
        DataError: when the two do not have the same input shape.
    """
    if distilled.input_shape != data.input_shape:
        raise DataError(f"Inputs of shape {distilled.input_shape} cannot be copies of inputs of {data.input_shape}.")
    scale = UnitScale.of(data)
    made, size = distilled.train.inputs, len(data.train)
    examples = torch.cat([data.train.inputs, data.holdout.inputs])
    ratios = relative_distances(made, examples, scale)
    trained, held_out = ratios[:size], ratios[size:]
    mean = scale(examples).mean(0)
    ours, control = (
        _resemblance(made, data.train, trained, held_out, scale, mean),
        _resemblance(made, data.holdout, held_out, trained, scale, mean),
    )
    return Copies(
        size=len(made),
        training_size=size,
        pairs=ours.pairs(ours.is_copy),
        distances=ours.distances[ours.order(ours.is_copy)],
        shown=ours.pairs(ours.is_shown),
        held_out_copies=int(control.is_copy.sum()),
        held_out_shown=int(control.is_shown.sum()),
        nearest=ours.nearest,
        calibration=calibrate(trained, held_out),
    )


@dataclass(frozen=True, kw_only=True)
class _Resemblance:
    """The nearest example of a split for each synthetic example, its distance, and whether it is a copy."""

    nearest: Int[Tensor, " synthetic"]
    distances: Float[Tensor, " synthetic"]
    is_copy: Bool[Tensor, " synthetic"]
    is_shown: Bool[Tensor, " synthetic"]

    def order(self, chosen: Bool[Tensor, " synthetic"]) -> Int[Tensor, " chosen"]:
        rows = chosen.nonzero()[:, 0]
        return rows[self.distances[rows].argsort()]

    def pairs(self, chosen: Bool[Tensor, " synthetic"]) -> Int[Tensor, "chosen 2"]:
        rows = self.order(chosen)
        return torch.stack([rows, self.nearest[rows]], 1)


def _resemblance(
    made: Float[Tensor, "synthetic ..."],
    split: Split,
    ratios: Float[Tensor, " example"],
    null: Float[Tensor, " stranger"],
    scale: UnitScale,
    mean: Float[Tensor, "..."],
) -> _Resemblance:
    if len(split) == 0 or len(null) == 0:
        none = torch.zeros(len(made), dtype=torch.bool)
        return _Resemblance(
            nearest=torch.full((len(made),), -1),
            distances=torch.full((len(made),), torch.inf, dtype=torch.float64),
            is_copy=none,
            is_shown=none,
        )
    beside = compare(made, split, scale)
    nearest = beside.nearest_examples
    stands_out = (recovered(ratios, null, COPY_FPR) & (ratios < NEARER_THAN_ANY))[nearest]
    shown = scale(split.inputs)[nearest]
    errors, of_mean = ((shown - guess).flatten(1).square().sort(1).values for guess in (scale(made), mean))
    kept = max(1, round((1.0 - NOISE_SHARE) * errors.shape[1]))

    def shows(count: int) -> Bool[Tensor, " synthetic"]:
        error = errors[:, :count].mean(1)
        return (error < GOOD) & (error < BETTER_THAN_MEAN * of_mean[:, :count].mean(1))

    is_copy = stands_out & shows(errors.shape[1])
    return _Resemblance(
        nearest=nearest,
        distances=beside.nearest_distances,
        is_copy=is_copy,
        is_shown=is_copy | (stands_out & shows(kept)),
    )
