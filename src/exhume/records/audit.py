"""Everything an audit of one network hands over: what was tried, why, from which start, and what each attack found."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from exhume.records.evaluation import Evaluation


class Applicability(StrEnum):
    """Whether an attack applies to a network."""

    APPLIES = "applies"
    WITH_CAVEATS = "applies with caveats"
    DOES_NOT = "does not apply"


@dataclass(frozen=True, kw_only=True)
class Assessment:
    """Whether one attack applies, why, and what became of it."""

    attack: str
    """The name the command line uses."""
    applies: Applicability
    reasons: tuple[str, ...] = ()
    """Why it does not apply, or what to keep in mind when it does; a sentence each."""
    settings: str = ""
    """The attack as Python writes it."""
    fate: str = ""
    """What became of it: that it ran, or why it did not; empty when nobody tried."""


@dataclass(frozen=True, kw_only=True)
class StartCandidate:
    """How far a network resembles one start that it may have grown out of."""

    name: str
    """Such as ``seed 42``, or the name of a file."""
    distance: float
    """The norm of the change from this start, relative to the norm of the final weights; about 1.4 for strangers."""
    correlation: float
    """Of the final weights with this start, over all weights that a start draws at random; 0 for strangers."""
    log10_p: float
    """The probability of such a correlation for a start drawn independently, as a power of ten."""
    rank: int | None = None
    """Of the first trained layer's change, where it is below what the layer allows: the trace of a training set."""
    full_rank: int | None = None
    """What the layer allows."""


@dataclass(frozen=True, kw_only=True)
class StartEvidence:
    """Which start a network grew out of, and how sure that is."""

    candidates: tuple[StartCandidate, ...]
    """The likeliest first, as many as are worth showing."""
    tried: int
    """How many starts were compared; the p-values pay for all that would have been."""
    stand_ins: tuple[str, ...] = ()
    """Weights the start does not have (a new head), for which the final ones stand in."""

    @property
    def best(self) -> StartCandidate:
        """The likeliest start."""
        return self.candidates[0]

    @property
    def is_clear(self) -> bool:
        """Whether chance, with so many starts tried, does not explain the likeliest one."""
        return self.best.log10_p < CLEAR_START


CLEAR_START = -6.0
"""Below this power of ten a resemblance is not put down to chance."""


@dataclass(frozen=True, kw_only=True)
class Price:
    """What one change of the weights before release costs, and what it saves, measured on the audited network."""

    change: str
    """In words: ``rounded to float16``."""
    certified: int | None
    """None when the attack was stopped before its end, so that nobody knows."""
    recovered: int | None = None
    """Training examples matched well (``good``); None when the data is unknown, or the attack was stopped."""
    accuracy: float | None = None
    """On data never seen; None when the data is unknown."""
    note: str = ""
    """Why the attack did not run or come to its end, where it did not."""


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The audit of one network by every attack that applies."""

    evaluations: Mapping[str, Evaluation]
    """What each attack found, by name, in the order they ran."""
    assessments: tuple[Assessment, ...] = ()
    """Of every known attack, the cheapest first."""
    start: StartEvidence | None = None
    prices: tuple[Price, ...] = ()
    """Of changes before release, where they were asked for; the first is no change at all."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What else it takes to repeat the audit, as JSON values."""
