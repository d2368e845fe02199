"""Search the rows of all inputs in rounds: search, accept what is beyond chance, correct rows by each other."""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.gates.accept import accept_rows
from exhume.attacks.gates.check import check_rows
from exhume.attacks.gates.near_duplicates import separate_near_duplicates
from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.readout import missing_directions
from exhume.attacks.gates.refine import drop_spoilers, refine_rows
from exhume.attacks.gates.rows import find_rows
from exhume.attacks.gates.search import Tick, no_tick, search_rows
from exhume.attacks.gates.starts import draw_starts
from exhume.attacks.gates.zeros import is_entangled

UNTRIED = 10**9
"""Initial gain of an untried strategy; large, so that each strategy is tried once."""


@dataclass(kw_only=True)
class RowSearch:
    """The state of a search: the rows found so far, and everything that decides how it continues."""

    problem: RowProblem
    generator: torch.Generator
    starts: int | None
    """Starting points per round; None: three per row."""
    error_rate: float
    found: Float[Tensor, "row rank"]
    warm: Float[Tensor, "candidate value"]
    """Inputs to start from besides random ones, as long as rounds find new rows."""
    tick: Tick = no_tick
    """Called several times per round; may raise to stop, after which the state packed before the round is valid."""
    tried: int = 0
    """Number of candidate rows so far."""
    idle: int = 0
    """Number of consecutive rounds without a new row."""
    rounds: int = 0
    most: int = 0
    """Largest number of rows found so far; some may have been dropped since."""
    best_round: int = 0
    """The round in which that number was reached."""
    gains: list[int] = field(default_factory=list)
    """Number of new rows of each strategy when it was last used."""
    used: list[int] = field(default_factory=list)
    """The round in which each strategy was last used."""

    def __post_init__(self) -> None:
        count = len(self.problem.search.strategies)
        self.gains, self.used = self.gains or [UNTRIED] * count, self.used or [0] * count

    @property
    def is_complete(self) -> bool:
        """Whether every row is found."""
        return len(self.found) == self.problem.rank

    def is_stuck(self, patience: int) -> bool:
        """Return whether ``patience`` rounds found nothing new, or three times as many only went back and forth."""
        return self.idle >= patience or self.rounds - self.best_round >= 3 * patience

    def run_round(self) -> None:
        """Search once from random and warm starting points, with the strategy that found most when last used."""
        problem, rules, generator = self.problem, self.problem.search, self.generator
        directions, strengths = missing_directions(problem, self.found)
        most = max(64, 3 * problem.rank) if self.starts is None else self.starts
        count = min(most, max(rules.least_starts, rules.starts_per_row * len(strengths)))
        # Without the directions of found inputs, a warm start is closer to a missing one.
        warm = self.warm[: 0 if self.idle else None] @ directions @ directions.T
        starts = torch.cat([warm, draw_starts(problem, directions, strengths, count, generator)])
        chosen = max(range(len(rules.strategies)), key=lambda which: (self.gains[which], -self.used[which]))
        rows, _ = search_rows(problem, starts, directions, rules.strategies[chosen], self.tick)
        near_inputs = starts if self.idle or len(strengths) <= rules.few_missing else warm
        rows = torch.cat([rows, find_rows(problem, near_inputs, generator)])
        self.tick()
        self.tried += len(rows)
        self.rounds += 1
        before = len(self.found)
        limit = math.log(self.error_rate / self.tried)
        late = self.idle >= rules.late_after
        self.found = accept_rows(problem, self.found, rows, directions, limit, generator, late=late)
        is_nearly_complete = problem.rank - len(self.found) <= problem.rank // 4
        if is_nearly_complete and not bool(check_rows(problem, self.found).is_plausible.all()):
            self.found = drop_spoilers(problem, self.found, most=2)
        self.gains[chosen], self.used[chosen] = len(self.found) - before, self.rounds
        self.idle = 0 if len(self.found) > before else self.idle + 1
        if len(self.found) > self.most:
            self.most, self.best_round = len(self.found), self.rounds

    def correct_rows(self) -> None:
        """Correct the found rows by each other: refine them, separate near-duplicates, and drop wrong ones."""
        if self.is_complete and self._is_consistent():
            return
        rows = refine_rows(self.problem, self.found, self.generator)
        self.tick()
        rows = separate_near_duplicates(self.problem, rows, self.generator)
        self.found = drop_spoilers(self.problem, rows, most=8)
        if not self.is_complete:  # a mixture may take the place of a missing row
            self.found = self.found[~is_entangled(self.problem, self.found)]

    def _is_consistent(self) -> bool:
        checked = check_rows(self.problem, self.found)
        return bool((checked.is_single & checked.is_exact & ~is_entangled(self.problem, self.found)).all())

    def pack(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the state as JSON values and tensors."""
        names = ("tried", "idle", "rounds", "most", "best_round", "gains", "used")
        return {name: copy.copy(getattr(self, name)) for name in names}, {
            "found": self.found,
            "warm": self.warm,
            "generator": self.generator.get_state(),
        }

    def unpack(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Continue from a packed state."""
        for name, value in values.items():
            setattr(self, name, value)
        self.found, self.warm = (tensors[name].to(self.found) for name in ("found", "warm"))
        self.generator.set_state(tensors["generator"])
