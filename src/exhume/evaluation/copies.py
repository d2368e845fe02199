"""Which examples of a synthetic set are copies of training examples, and what does the set betray beyond copies?

A distilled image may look like its class without betraying anybody. It is a *copy* of a training example when it shows
it (a mean squared error below 0.01, and below half of what the mean of all real examples has), is nearer to it than any
other real example is, and nearer for its surroundings than all but 1 % of held-out examples, which nobody can have
copied. It *shows through noise* when the same holds once
the tenth of its values that fit worst is left out. Copies aside, training examples may be nearer to the set than
held-out ones are: how many are below the cut of 1 % is compared with what chance allows.
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
from exhume.evaluation.comparison import compare, example_distances, neighbour_distances
from exhume.evaluation.distances import UnitScale
from exhume.records import Calibration, Dataset, Split
from exhume.records.comparison import GOOD

COPY_FPR = 0.01
NEARER_THAN_ANY = 1.0
"""A copy is nearer to its original than the nearest other real example is: a ratio of distances below one."""
LEFT_OUT = 0.1
"""The share of an example's values that noise may have spoilt."""
MORE_THAN_THE_MEAN = 0.5
"""A copy leaves less unsaid than this share of what the mean of all leaves unsaid: a faint image is near to any faint
photograph, and shows none."""
SURELY = 1e-3
"""Odds of chance below which a set is said to betray its training examples."""


@dataclass(frozen=True, kw_only=True)
class Copies:
    """Who was copied, who is betrayed, and how sure that is."""

    size: int
    """How many synthetic examples there are."""
    training_size: int
    pairs: Int[Tensor, "copy 2"]
    """Synthetic example and the training example it copies, the nearest pair first."""
    distances: Float[Tensor, " copy"]
    """Squared and summed over values, of each pair, in units of the value range."""
    shown: Int[Tensor, "shown 2"]
    """As ``pairs``, for examples that show through noise; copies included."""
    held_out_copies: int
    """Synthetic examples that would be copies of held-out examples by the same measure: a control, 0 as a rule."""
    held_out_shown: int
    """The same control for examples that show through noise."""
    nearest: Int[Tensor, " synthetic"]
    """Of each synthetic example, the nearest training example, copied or not."""
    calibration: Calibration | None
    """Of the distance from each training example to the nearest synthetic one over that to the nearest other real one;
    None where nothing is held out."""

    @property
    def copied(self) -> int:
        """How many training examples were copied."""
        return len(set(self.pairs[:, 1].tolist()))

    @property
    def copying(self) -> int:
        """How many synthetic examples are copies."""
        return len(self.pairs)

    @property
    def betrayed(self) -> int:
        """How many training examples are nearer, for their surroundings, than all but 1 % of held-out ones."""
        return 0 if self.calibration is None else self.calibration.level(COPY_FPR).recovered

    @property
    def chance(self) -> float:
        """The odds of betraying so many if training examples were no nearer than held-out ones."""
        return 1.0 if self.calibration is None else self.calibration.level(COPY_FPR).chance

    @property
    def is_safe(self) -> bool:
        """Whether nobody is copied, shows through noise or is betrayed beyond chance; never known without a null."""
        unseen = len(self.shown) <= self.held_out_shown
        return self.calibration is not None and self.copied == 0 and unseen and self.chance >= SURELY

    @property
    def sentence(self) -> str:
        """The finding in a sentence or two."""
        if self.calibration is None:
            return "Nothing is held out, so nobody can say what is a copy and what only looks like one."
        whole = f"{self.betrayed} of {self.training_size} training examples lie nearer than 99 % of held-out ones"
        beyond = (
            f"{whole}, with odds of {self.chance:.0e} by chance."
            if self.chance < SURELY
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
        """Return the finding for machines."""
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
    """Find what ``distilled`` betrays of the training examples of ``data``, against its held-out examples.

    Raises:
        DataError: when the two are not of one shape.
    """
    if distilled.input_shape != data.input_shape:
        raise DataError(f"Inputs of shape {distilled.input_shape} cannot be copies of inputs of {data.input_shape}.")
    scale = UnitScale.of(data)
    made, size = distilled.train.inputs, len(data.train)
    everybody = torch.cat([data.train.inputs, data.holdout.inputs])
    ratios = example_distances(made, everybody, scale) / neighbour_distances(everybody, scale)
    ratios = ratios.nan_to_num(torch.inf)  # of two equal examples nobody can say which one was copied
    mine, theirs = ratios[:size], ratios[size:]
    mean = scale(everybody).mean(0)
    ours, control = (
        _resemblance(made, data.train, mine, theirs, scale, mean),
        _resemblance(made, data.holdout, theirs, mine, scale, mean),
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
        calibration=calibrate(mine, theirs),
    )


@dataclass(frozen=True, kw_only=True)
class _Resemblance:
    """Of each synthetic example: the nearest of a split, how near, and what that makes it."""

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
        nobody = torch.zeros(len(made), dtype=torch.bool)
        return _Resemblance(
            nearest=torch.full((len(made),), -1),
            distances=torch.full((len(made),), torch.inf, dtype=torch.float64),
            is_copy=nobody,
            is_shown=nobody,
        )
    beside = compare(made, split, scale)
    nearest = beside.nearest_examples
    stands_out = (recovered(ratios, null, COPY_FPR) & (ratios < NEARER_THAN_ANY))[nearest]
    shown = scale(split.inputs)[nearest]
    errors, unsaid = ((shown - said).flatten(1).square().sort(1).values for said in (scale(made), mean))
    kept = max(1, round((1.0 - LEFT_OUT) * errors.shape[1]))

    def shows(count: int) -> Bool[Tensor, " synthetic"]:
        error = errors[:, :count].mean(1)
        return (error < GOOD) & (error < MORE_THAN_THE_MEAN * unsaid[:, :count].mean(1))

    is_copy = stands_out & shows(errors.shape[1])
    return _Resemblance(
        nearest=nearest,
        distances=beside.nearest_distances,
        is_copy=is_copy,
        is_shown=is_copy | (stands_out & shows(kept)),
    )
