"""Hunt for the rows of all inputs in rounds: search, accept what is no accident, free rows of each other, search on."""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.gates.check import (
    COVERED,
    SINGLE_INPUT,
    agreement,
    check,
    coverage,
    entangled,
    fitted_inputs,
    log_p_generic,
    missing_directions,
    nested,
    reduced,
    refined,
    sharpen,
    shows_zero,
    without_culprits,
)
from exhume.attacks.gates.near_duplicates import FEW_MISSING, told_apart, without_repeats
from exhume.attacks.gates.search import RowProblem, SearchSettings, Tick, random_starts, rows_of, search, unheard
from exhume.core.suppression import suppress_neighbours

NEARLY_AS_SPARSE = 0.8
"""How many zeros, relative to rows found before, a row must have; those on their way to a true row have fewer."""
SIMILAR, SAME_ROW = 0.98, 0.9995
"""Rough rows with a larger cosine are worth one look, and sharp ones are the same row found twice."""
STARTS_PER_ROW, LEAST_STARTS = 8, 32
"""How many candidates a missing row is worth, and how many a round takes at least."""
WORTH_ANOTHER_LOOK = 24
"""How many candidates a round are taken further at least; half as many as there are rows where that is more."""
UNTRIED = 10**9
"""What a strategy is taken to find before it was used: all of them come first."""
LATE = 2
"""After so many rounds that found nothing new, what is missing may be a near-duplicate of what was found."""

STEERED = SearchSettings()
BRIEFLY_STEERED = SearchSettings(inverse_iterations=2, first_inverse_iterations=2, iterations=12, steered=3)
BY_GATES = SearchSettings(
    first_inverse_iterations=8, inverse_iterations=2, steered=0, iterations=12, first_sharpness=30.0, widths=(0.1, 0.01)
)
NARROWLY = replace(BY_GATES, row_steps=6, widths=(0.05, 0.01))
STRATEGIES = (STEERED, BY_GATES, BRIEFLY_STEERED, NARROWLY)
"""Ways to search: what one misses another finds. Steering helps where training was lazy and inputs differ much; gates
alone, believed firmly, tell similar inputs apart."""


@dataclass(kw_only=True)
class Hunt:
    """The rows found so far, and all that decides how the hunt goes on."""

    problem: RowProblem
    generator: torch.Generator
    starts: int | None
    """Candidates a round; None: three for every row."""
    error_rate: float
    found: Float[Tensor, "row rank"]
    warm: Float[Tensor, "candidate value"]
    """Inputs to start from beside random ones, as long as that finds anything."""
    tick: Tick = unheard
    """Called now and then within a round; whoever wants to stop raises there, and what was packed before it counts."""
    tried: int = 0
    idle: int = 0
    """How many rounds in a row found nothing new."""
    rounds: int = 0
    most: int = 0
    """The largest number of rows found so far, some of which may have been left out again."""
    record: int = 0
    """In which round that was."""
    gains: list[int] = field(default_factory=lambda: [UNTRIED] * len(STRATEGIES))
    """How many rows each strategy found when it was last used."""
    used: list[int] = field(default_factory=lambda: [0] * len(STRATEGIES))
    """In which round that was."""

    @property
    def is_complete(self) -> bool:
        """Whether every row is found."""
        return len(self.found) == self.problem.rank

    def is_stuck(self, patience: int) -> bool:
        """Tell whether nothing new turned up for so many rounds, or thrice as many only went back and forth."""
        return self.idle >= patience or self.rounds - self.record >= 3 * patience

    def round(self) -> None:
        """Search once, from random starts and the warm ones, with the strategy that found most when last used."""
        problem, generator = self.problem, self.generator
        directions, strengths = missing_directions(problem, self.found)
        most = max(64, 3 * problem.rank) if self.starts is None else self.starts
        count = min(most, max(LEAST_STARTS, STARTS_PER_ROW * len(strengths)))
        # Inputs that were found are gone from the missing directions, and what is left of a warm start is nearer.
        warm = self.warm[: 0 if self.idle else None] @ directions @ directions.T
        starts = torch.cat([warm, random_starts(problem, directions, strengths, count, generator)])
        chosen = max(range(len(STRATEGIES)), key=lambda which: (self.gains[which], -self.used[which]))
        rows, _ = search(problem, starts, directions, STRATEGIES[chosen], self.tick)
        at_their_word = starts if self.idle or len(strengths) <= FEW_MISSING else warm
        rows = torch.cat([rows, rows_of(problem, at_their_word, generator)])
        self.tick()
        self.tried += len(rows)
        self.rounds += 1
        before = len(self.found)
        limit = math.log(self.error_rate / self.tried)
        self.found = joined(problem, self.found, rows, directions, limit, generator, late=self.idle >= LATE)
        if problem.rank - len(self.found) <= problem.rank // 4 and not bool(
            check(problem, self.found).is_plausible.all()
        ):
            self.found = without_culprits(problem, self.found, most=2)
        self.gains[chosen], self.used[chosen] = len(self.found) - before, self.rounds
        self.idle = 0 if len(self.found) > before else self.idle + 1
        if len(self.found) > self.most:
            self.most, self.record = len(self.found), self.rounds

    def settle(self) -> None:
        """Look at the found rows together: sharpen them by each other, solve groups, and leave out wrong ones."""
        if self.is_complete and self._is_consistent():
            return
        rows = refined(self.problem, self.found, self.generator)
        self.tick()
        rows = told_apart(self.problem, rows, (BY_GATES, NARROWLY), self.generator)
        self.found = without_culprits(self.problem, rows, most=8)
        if not self.is_complete:  # a mixture may stand in the way of what is missing
            self.found = self.found[~entangled(self.problem, self.found)]

    def _is_consistent(self) -> bool:
        checked = check(self.problem, self.found)
        return bool((checked.is_single & checked.is_exact & ~entangled(self.problem, self.found)).all())

    def pack(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the state as JSON values and tensors."""
        names = ("tried", "idle", "rounds", "most", "record", "gains", "used")
        return {name: copy.copy(getattr(self, name)) for name in names}, {
            "found": self.found,
            "warm": self.warm,
            "generator": self.generator.get_state(),
        }

    def unpack(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Take up a state that was packed."""
        for name, value in values.items():
            setattr(self, name, value)
        self.found, self.warm = (tensors[name].to(self.found) for name in ("found", "warm"))
        self.generator.set_state(tensors["generator"])


def joined(
    problem: RowProblem,
    found: Tensor,
    candidates: Tensor,
    directions: Tensor,
    limit: float,
    generator: torch.Generator,
    late: bool = False,
) -> Tensor:
    """Add to the found rows the candidates that are new and no chance finding (a log p-value below ``limit``).

    Sparsest first, and each freed of the rows that are known already; in return the known ones are freed of it. Rows
    whose zeros are nearly those of a found one may be mixtures, and wait until it is late.
    """
    rough = agreement(problem, candidates, fitted_inputs(problem, candidates, directions))
    order = rough.argsort(descending=True)
    likely = without_repeats(candidates[order[rough[order] > SINGLE_INPUT - 0.1]], SIMILAR)
    likely = likely[: max(WORTH_ANOTHER_LOOK, problem.rank // 2)]
    if len(likely) == 0:
        return found
    # Once more from the inputs these candidates imply: what was on its way to a true row arrives there.
    again = rows_of(problem, fitted_inputs(problem, likely, directions), generator)
    sharp = without_repeats(_sparsest_first(problem, sharpen(problem, torch.cat([likely, again]))), SAME_ROW)
    sharp = sharpen(problem, reduced(problem, reduced(problem, sharp, found), sharp), steps=4)
    sharp = without_repeats(sharp, SAME_ROW)
    sharp = sharp[_passes(problem, sharp, found, directions, limit)]
    merged = without_repeats(torch.cat([found, sharp]), SAME_ROW) if late else _apart(problem, found, sharp)
    merged = merged[: problem.rank]
    if len(merged) > len(found):
        merged = without_repeats(sharpen(problem, reduced(problem, merged, merged), steps=4), SAME_ROW)
    return merged


def _apart(problem: RowProblem, found: Tensor, rows: Tensor) -> Tensor:
    """Add to the found rows those that are clearly apart from all before them."""
    every = torch.cat([found, rows])
    pairs = nested(problem, every).cpu()
    pairs = pairs | pairs.T
    new = (~pairs[:, : len(found)].any(1)).nonzero()[:, 0]
    kept = [row for row, _ in suppress_neighbours(new[new >= len(found)], lambda row: pairs[row])]
    return torch.cat([found, every[kept]])


def _sparsest_first(problem: RowProblem, rows: Tensor) -> Tensor:
    return rows[shows_zero(problem, rows).sum(dim=1).argsort(descending=True)]


def _passes(problem: RowProblem, rows: Tensor, found: Tensor, directions: Tensor, limit: float) -> Bool[Tensor, " row"]:
    """Tell which rows have more zeros than chance gives, nearly as many as found ones, where one input puts them."""
    inputs = fitted_inputs(problem, rows, directions)
    is_single = (agreement(problem, rows, inputs) >= SINGLE_INPUT) & (coverage(problem, rows, inputs) >= COVERED)
    if len(found):
        usual = shows_zero(problem, found).sum(dim=1).double().median()
        is_single &= shows_zero(problem, rows).sum(dim=1) >= NEARLY_AS_SPARSE * usual
    return is_single & (log_p_generic(problem, rows).to(rows) < limit)
