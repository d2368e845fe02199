"""Which examples of a synthetic set are copies of training examples, and what does the set betray beyond copies?

A distilled image may look like its class without betraying anybody. It is a *copy* of a training example when it shows
it (a mean squared error below 0.01), is nearer to it than any other real example is, and nearer for its surroundings
than all but 1 % of held-out examples, which nobody can have copied. Copies aside, training examples may be nearer to
the set than held-out ones are: how many are below the cut of 1 % is compared with what chance allows.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.errors import DataError
from exhume.evaluation.calibration import calibrate, recovered
from exhume.evaluation.comparison import compare, example_distances, neighbour_distances
from exhume.evaluation.distances import UnitScale
from exhume.records import Calibration, Dataset, Split
from exhume.records.audit import plain
from exhume.records.comparison import GOOD

COPY_FPR = 0.01
NEARER_THAN_ANY = 1.0
"""A copy is nearer to its original than the nearest other real example is: a ratio of distances below one."""
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
    held_out_copies: int
    """Synthetic examples that would be copies of held-out examples by the same measure: a control, 0 as a rule."""
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
        """Whether no example is a copy and no more are betrayed than chance allows; never known without a null."""
        return self.calibration is not None and self.copied == 0 and self.chance >= SURELY

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
        if self.copied == 0:
            return f"No distilled example is a copy. {beyond}"
        return (
            f"{self.copying} of {self.size} distilled examples are copies of {self.copied} training examples. {beyond}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the finding for machines."""
        finding = {
            "distilled": self.size,
            "training_size": self.training_size,
            "copies": self.copying,
            "copied_examples": self.copied,
            "held_out_copies": self.held_out_copies,
            "betrayed_examples": self.betrayed,
            "chance": self.chance,
            "fpr": COPY_FPR,
            "is_safe": self.is_safe,
            "pairs": self.pairs,
            "squared_distances": self.distances,
            "nearest_training_example": self.nearest,
            "sentence": self.sentence,
        }
        return {name: plain(value) for name, value in finding.items()}


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
    pairs, distances, nearest = _shown(made, data.train, mine, theirs, scale)
    return Copies(
        size=len(made),
        training_size=size,
        pairs=pairs,
        distances=distances,
        held_out_copies=len(_shown(made, data.holdout, theirs, mine, scale)[0]),
        nearest=nearest,
        calibration=calibrate(mine, theirs),
    )


def _shown(
    made: Float[Tensor, "synthetic ..."],
    split: Split,
    ratios: Float[Tensor, " example"],
    null: Float[Tensor, " stranger"],
    scale: UnitScale,
) -> tuple[Int[Tensor, "copy 2"], Float[Tensor, " copy"], Int[Tensor, " synthetic"]]:
    """Return the copies of a split's examples with their squared distances, and every nearest example."""
    if len(split) == 0 or len(null) == 0:
        nothing = torch.zeros(0, 2, dtype=torch.long)
        return nothing, torch.zeros(0, dtype=torch.float64), torch.full((len(made),), -1)
    beside = compare(made, split, scale)
    standing_out = recovered(ratios, null, COPY_FPR) & (ratios < NEARER_THAN_ANY)
    is_near = beside.nearest_distances / max(1, split.inputs[:1].numel()) < GOOD
    rows = (is_near & standing_out[beside.nearest_examples]).nonzero()[:, 0]
    rows = rows[beside.nearest_distances[rows].argsort()]
    return (
        torch.stack([rows, beside.nearest_examples[rows]], 1),
        beside.nearest_distances[rows],
        beside.nearest_examples,
    )
