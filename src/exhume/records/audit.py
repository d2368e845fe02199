"""Audit: all attacks on one network, why each was tried, from which initial weights, and what it found."""

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
    """Whether one attack applies, why, and whether it ran."""

    attack: str
    """The name the command line uses."""
    applies: Applicability
    reasons: tuple[str, ...] = ()
    """Why it does not apply, or the caveats where it does; one sentence each."""
    settings: str = ""
    """The ``repr`` of the attack."""
    fate: str = ""
    """Whether it ran, or why it did not; empty when it was not tried."""


FAILED = "ended by an error"
"""How the fate of an attack begins that an error of exhume itself ended."""


@dataclass(frozen=True, kw_only=True)
class StartCandidate:
    """How far a network resembles one set of initial weights."""

    name: str
    """Such as ``seed 42``, or the name of a file."""
    distance: float
    """Norm of the change from these weights, relative to the norm of the final ones; about 1.4 for unrelated ones."""
    correlation: float
    """Correlation of the final weights with these, over all weights drawn at random; about 0 for unrelated weights."""
    log10_p: float
    """log10 of the probability of such a correlation for weights drawn independently."""
    rank: int | None = None
    """Rank of the first trained layer's change, where it is below the full rank: the trace of a training set."""
    full_rank: int | None = None
    """The largest rank that the layer allows."""


@dataclass(frozen=True, kw_only=True)
class StartEvidence:
    """Which initial weights a network was trained from, and how certain that is."""

    candidates: tuple[StartCandidate, ...]
    """The most likely ones, best first."""
    tried: int
    """The number of candidates compared; the p-values are corrected for all that could have been."""
    stand_ins: tuple[str, ...] = ()
    """Names of weights missing from the candidate (a new head), replaced by the final ones."""

    @property
    def best(self) -> StartCandidate:
        """The most likely candidate."""
        return self.candidates[0]

    @property
    def is_clear(self) -> bool:
        """Whether the best candidate is too similar for chance, given the number tried."""
        return self.best.log10_p < CLEAR_START


@dataclass(frozen=True, kw_only=True)
class TokenCounts:
    """How many rows of one embedding moved in training: one row per token."""

    layer: str
    evidence: str
    """What shows it: ``weight change``, ``gradient`` or ``optimiser state``."""
    vocabulary: int
    moved: int
    trained: tuple[int, int] | None = None
    """Of the distinct tokens of the training text, how many moved, and how many there are; None without data."""
    held_out: tuple[int, int] | None = None
    """The same for tokens that only held-out text has."""


CLEAR_START = -6.0
"""log10 of the p-value below which a resemblance counts as real: one in a million."""


STATE_DROPPED = "without the optimiser's state"
"""The name of the release of a checkpoint's weights alone, among changes before release."""


@dataclass(frozen=True, kw_only=True)
class Price:
    """The cost and the benefit of one change of the weights before release, measured on the audited network."""

    change: str
    """In words: ``rounded to float16``."""
    certified: int | None
    """Number of certificates after the change; None when the attack was stopped before its end."""
    recovered: int | None = None
    """Training examples matched well (``good``); None when the data is unknown, or the attack was stopped."""
    accuracy: float | None = None
    """Accuracy on unseen data; None when the data is unknown."""
    note: str = ""
    """Why the attack did not run or finish, where it did not."""


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The audit of one network by every attack that applies."""

    evaluations: Mapping[str, Evaluation]
    """The evaluation of each attack by name, in the order they ran."""
    assessments: tuple[Assessment, ...] = ()
    """The assessment of every known attack, cheapest first."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """What the attacker was given, as JSON values with the names a report prints; also where no attack applies."""
    tokens: tuple[TokenCounts, ...] | None = None
    """Which rows of embeddings moved, for a model that takes token ids; its text is not reconstructed. None: other."""
    start: StartEvidence | None = None
    prices: tuple[Price, ...] = ()
    """Prices of changes before release, where they were asked for; the first is for no change."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Further facts that are needed to repeat the audit, as JSON values."""
