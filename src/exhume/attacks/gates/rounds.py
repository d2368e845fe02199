"""Search the rows of all inputs in rounds.

A round makes candidate rows of inputs, from the units that each most certainly left off
(:mod:`exhume.attacks.gates.rows`). The inputs are changes of single units and random ones, or inputs that together
explain all of the evidence, whichever found more for its cost when last used. Candidates that chance does not explain
join a pool, and the heaviest basis of the pool is what is found (:mod:`exhume.attacks.gates.pool`). Once the basis is
complete, the inputs that all rows imply together propose better rows, and the rows that fit together best are chosen
(:mod:`exhume.attacks.gates.exchange`).
"""

import copy
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.gates.exchange import LEAST_GAIN, exchange_rows, joint_score, read_codes
from exhume.attacks.gates.families import rows_in_families
from exhume.attacks.gates.fit import fit_codes, orient_codes
from exhume.attacks.gates.known_inputs import Choice, KnownInputs
from exhume.attacks.gates.mixing import has_decayed, may_contain
from exhume.attacks.gates.peeling import can_peel, peel_rows
from exhume.attacks.gates.pool import add_to_pool, heaviest_basis
from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.readout import missing_directions
from exhume.attacks.gates.rows import are_same, complement, drop_repeats, polish, rows_of_inputs, rows_through_units
from exhume.attacks.gates.seeds import column_seeds, draw_starts
from exhume.attacks.gates.significance import log_p_zeros
from exhume.attacks.gates.squares import rows_by_squares
from exhume.attacks.gates.values import have_values, rows_by_values
from exhume.attacks.gates.zeros import count_evidence, find_zeros
from exhume.core.progress import Tick, no_tick

BY_SILENCE, BY_EXPLAINING, BY_TOGETHER, BY_SQUARES = 0, 1, 2, 3
"""The ways to make rows; the third needs a complete set, the last an optimiser that sums squares of gradients."""
UNTRIED = 10**9
"""Initial gain of an untried way; large, so that each is tried once."""

Explain = Callable[[int, Float[Tensor, "row rank"], Tick], Float[Tensor, "candidate rank"]]
"""Returns inputs that together explain what known rows leave of the evidence; the number says how often in vain."""


@dataclass(kw_only=True)
class RowSearch:
    """The state of a search: the rows found so far, and everything that decides how it continues."""

    problem: RowProblem
    generator: torch.Generator
    starts: int | None
    """Inputs to start from per round; None: decided by the number of missing rows."""
    explain: Explain | None = None
    """The source of inputs that explain the evidence; None: there is none."""
    tick: Tick = no_tick
    """Called several times per round; may raise to stop, after which the state packed before the round is valid."""
    tried: int = 0
    """Number of candidate rows so far."""
    idle: int = 0
    """Number of consecutive rounds without a new row, or without a better choice of rows."""
    rounds: int = 0
    asked: int = 0
    """Number of times that inputs that explain the evidence led to few new rows."""
    columns: int = 0
    """Number of units whose change has served as an input."""
    score: float = -sys.float_info.max
    """How well the rows fit together, once they are complete."""
    is_settled: bool = False
    """Whether all rows are found and none may be mixed into another."""
    gains: list[int] = field(default_factory=lambda: [UNTRIED] * 4)
    """Number of new rows of each way when it was last used, for the cost of an ordinary round."""
    used: list[int] = field(default_factory=lambda: [0] * 4)
    """The round in which each way was last used."""

    def __post_init__(self) -> None:
        self.found = self.pool = self.trusted = self.judged = self.problem.rows.new_zeros(0, self.problem.rank)
        self.inputs = KnownInputs(problem=self.problem)
        self.weights = self.pool.new_zeros(0)
        """Zeros beyond chance of each row of the pool, less those that its input contradicts."""
        self.by_values = have_values(self.problem)
        """Whether rows are found by their values as well, which needs no other inputs."""
        if self.by_values:
            self.gains[BY_EXPLAINING] = 0
        if self.problem.forms is not None:  # squares tell so much more that other ways wait until they find nothing
            self.gains[BY_SILENCE] = self.gains[BY_EXPLAINING] = 0
        elif has_decayed(self.problem) and self.explain is not None:  # its gates say little about long ago
            self.gains[BY_SILENCE] = 0

    @property
    def is_complete(self) -> bool:
        """Whether there are as many rows as dimensions."""
        return len(self.found) == self.problem.rank

    def is_finished(self, patience: int) -> bool:
        """Return whether nothing is left to find, or no way finds anything new."""
        is_done = self.is_complete and not self._has_guesses()
        return self.is_settled or self.idle >= (min(self.problem.search.patience, patience) if is_done else patience)

    def _has_guesses(self) -> bool:
        """Return whether some rows are guesses, which chance may explain."""
        known = torch.cat([self.pool, self.inputs.rows])
        return not bool(are_same(self.problem, self.found, known).any(dim=1).all())

    def _ways(self) -> list[int]:
        """Return the ways that apply: a complete set explains the evidence better than other inputs would."""
        ways = [BY_SILENCE] if self.problem.forms is None else [BY_SQUARES, BY_SILENCE]
        if self.is_complete:
            return [BY_SILENCE, BY_TOGETHER] if self.problem.forms is None else [BY_SQUARES]
        can_explain = self.explain is not None and self.asked <= self.problem.search.patience
        return [*ways, BY_EXPLAINING] if can_explain else ways

    def run_round(self) -> None:
        """Make rows in the way that found most when it was last used, and choose again among all."""
        if self.rounds == 0 and can_peel(self.problem) and self._peel():
            return
        way = max(self._ways(), key=lambda which: (self.gains[which], -self.used[which]))
        before, trusted, score, proven = len(self.found), len(self.trusted), self.score, len(self.inputs)
        rows = (self._rows_by_silence, self._rows_by_explaining, self._rows_together, self._rows_by_squares)[way]()
        self._add(rows)
        was_complete = self.is_complete
        if was_complete and way != BY_SQUARES:
            self._add(self._rows_in_families())
        if not was_complete:
            self._extend()
        else:
            self._choose_again(polish(self.problem, rows) if way == BY_TOGETHER and self._has_guesses() else rows[:0])
        if not self.is_complete and self.problem.rank - len(self.found) <= self.problem.rank // 4:
            self._complete_by_ends()
        if self.is_complete:
            self.inputs.add(orient_codes(self.problem, self.found, read_codes(self.problem, self.found)))
            self.inputs.add_last(self.found)
        if self.inputs.are_all:
            self.found = self.trusted = self.inputs.rows
        else:
            self.trusted = self.found[self._unmixed(self.found)]
        self.is_settled = len(self.trusted) == self.problem.rank
        gain = max(len(self.found) - before, 0) + max(len(self.trusted) - trusted, 0) + len(self.inputs) - proven
        cost = self.problem.search.growth**self.asked if way == BY_EXPLAINING else 1
        self.asked += way == BY_EXPLAINING and gain < self.problem.search.few * (self.problem.rank - before)
        self.gains[way], self.used[way] = gain // cost, self.rounds + 1
        if self.is_complete and not was_complete:
            self.gains[:] = [0, 0, UNTRIED, 0]  # what an incomplete set gained says nothing about a complete one
        self.idle = 0 if gain or self.score > score + LEAST_GAIN else self.idle + 1
        self.rounds += 1

    def accept(
        self, codes: Float[Tensor, "candidate rank"], log_p: Float[Tensor, " candidate"], choice: Choice
    ) -> None:
        """Continue with inputs that were chosen together in another way; if these are all, the search ends."""
        self.inputs.accept(codes, log_p, choice)
        if self.inputs.are_all:
            self.found = self.trusted = self.inputs.rows
            self.is_settled = True

    def _peel(self) -> bool:
        """Take the rows that single units show; return whether these are all."""
        rows, tested = peel_rows(self.problem, self.tick)
        self.tried += tested
        # There are more of them where the rank does not show weak inputs.
        if not len(rows) == len(heaviest_basis(self.problem, rows)) == self.problem.rank:
            self._add(rows)
            self.found = self.trusted = heaviest_basis(self.problem, self.pool)
            return False
        self.found = self.trusted = self.pool = self.judged = polish(self.problem, rows)
        self.weights = count_evidence(self.problem, self.found)
        self.rounds, self.is_settled = 1, True
        return True

    def _extend(self) -> None:
        """Take the heaviest rows of the pool, and guess the missing ones where they are few."""
        before, self.found = len(self.found), heaviest_basis(self.problem, torch.cat([self.inputs.rows, self.pool]))
        missing = self.problem.rank - len(self.found)
        has_stalled = len(self.found) == before
        if has_stalled and 0 < missing <= min(math.ceil(self.problem.rank / 4), self.problem.search.group):
            self._guess_missing()
        if self.is_complete:
            self.score = max(joint_score(self.problem, self.found), -sys.float_info.max)

    def _known_rows(self) -> Tensor:
        """Return the rows that are not searched any more; at first all that are found, later none that may be mixed."""
        known = self.trusted if self.idle or self.is_complete else self.found
        known = heaviest_basis(self.problem, torch.cat([self.inputs.rows, known]))
        return known if len(known) < self.problem.rank else known[:0]

    def _count(self, missing: int) -> int:
        wanted = max(self.problem.search.seeds, 3 * missing)
        return wanted if self.starts is None else min(self.starts, wanted)

    def _rows_by_silence(self) -> Tensor:
        """Find rows from the units that inputs most certainly left off; the inputs are columns and random ones."""
        problem = self.problem
        if self.by_values:
            seeds = column_seeds(problem, self.trusted if len(self.trusted) < problem.rank else None)
            count = self._count(0)
            start = self.idle * count % len(seeds)  # rows that were found last left new changes; else further units
            return self._rows_of(seeds[start : start + count])
        known = self._known_rows()
        directions, strengths = missing_directions(problem, known)
        count = self._count(len(strengths))
        seeds = column_seeds(problem)[self.columns : self.columns + count]
        self.columns += len(seeds)
        if self.rounds:
            around = draw_starts(problem, directions, strengths, count, self.generator)
            half = max(count // 2, count - len(seeds))
            seeds = torch.cat([around[:half] @ problem.basis, seeds[: count - half]])
        return self._sparse(self._rows_of(seeds, complement(known)))

    def _sparse(self, rows: Tensor) -> Tensor:
        """Keep rows with more zeros than can be forced and chance adds to a single row, and find them again."""
        log_p = log_p_zeros(self.problem, rows).to(rows.device)
        return self._fit_again(rows[log_p < math.log(self.problem.certificate.error_rate)])

    def _rows_of(self, codes: Tensor, outside: Tensor | None = None) -> Tensor:
        """Find rows of each input: by values, or several from few or many units and from random sets of them.

        In the first round an input is not tried again once it led to a row; most rows are easy.
        """
        if self.by_values:
            self.tried += len(codes)
            return rows_by_values(self.problem, codes, self.tick)
        found = [rows_through_units(self.problem, codes, self.generator)]
        self.tried += len(found[0])
        for share in self.problem.search.unit_shares:
            self.tick()
            rows = rows_of_inputs(self.problem, codes, share, outside, self.tick)
            self.tried += len(rows)
            found.append(rows)
            if self.rounds == 0:
                codes = codes[log_p_zeros(self.problem, rows).to(codes.device) >= self._limit]
        return torch.cat(found)

    @property
    def _limit(self) -> float:
        """The log probability below which chance does not explain a row."""
        return math.log(self.problem.certificate.error_rate / max(self.tried, 1))

    def _rows_by_explaining(self) -> Tensor:
        """Find rows of inputs that together explain the evidence."""
        assert self.explain is not None
        known = self._known_rows()
        codes = self.explain(self.asked, known, self.tick)
        if self.inputs.touch(codes, known, self.generator, self.tick):
            return known[:0]  # this is the quicker way
        return self._sparse(self._rows_of(codes, complement(known)))

    def _complete_by_ends(self) -> None:
        """Prove inputs of found rows by the ends of their range, then missing ones, which have few directions left."""
        if self.inputs.touch_rows(self.found, self.tick):
            random = draw_starts(
                self.problem, *missing_directions(self.problem, self.found), self.problem.search.seeds, self.generator
            )
            self.inputs.touch(random @ self.problem.basis, self.found, self.generator, self.tick)

    def _rows_by_squares(self) -> Tensor:
        """Find rows on which the squares of many units vanish."""
        known = self._known_rows()
        rows = rows_by_squares(self.problem, known, self._count(self.problem.rank - len(known)), self.generator)
        self.tried += len(rows)
        return rows

    def _fit_again(self, rows: Tensor) -> Tensor:
        """Fit an input to each new row and find the row from it again; keep the sparser one."""
        problem, rules = self.problem, self.problem.search
        rows = drop_repeats(
            problem, rows[count_evidence(problem, rows).argsort(descending=True)], problem.certificate.precision
        )
        rows = rows[~are_same(problem, rows, self.pool).any(dim=1)]
        rows = rows[: max(rules.seeds, problem.rank // 2)]
        if len(rows):
            self.tick()
            codes = fit_codes(problem, rows, tick=self.tick)
            found = [rows_of_inputs(problem, codes, share, tick=self.tick) for share in rules.unit_shares]
            every = torch.stack([rows, *found])
            self.tried += sum(map(len, found))
            zeros = torch.stack([find_zeros(problem, each).sum(dim=1) for each in every])
            rows = every[zeros.argmax(dim=0), torch.arange(len(rows), device=rows.device)]
        return rows

    def _add(self, rows: Tensor) -> None:
        self.tick()
        self.pool, self.weights = add_to_pool(self.problem, self.pool, self.weights, rows, self._limit, self.tick)

    def _guess_missing(self) -> None:
        """Complete the rows by the best for inputs that only missing rows span, whether or not chance explains them."""
        problem = self.problem
        directions, strengths = missing_directions(problem, self.found)
        seeds = draw_starts(problem, directions, strengths, problem.search.seeds // 2, self.generator) @ problem.basis
        rows = polish(problem, self._rows_of(seeds, complement(self.found)))
        rows = rows[count_evidence(problem, rows).argsort(descending=True)]
        anything = torch.eye(problem.rank).to(rows)
        self.found = heaviest_basis(problem, torch.cat([self.found, rows, anything]))

    def _rows_together(self) -> Tensor:
        """Find rows for the inputs that all rows imply together."""
        codes = orient_codes(self.problem, self.found, read_codes(self.problem, self.found))
        readers = torch.linalg.inv(self.found)
        outside = (readers / readers.norm(dim=0)).T[:, :, None]  # each is orthogonal to all rows but one
        return self._rows_of(codes, outside)

    def _rows_in_families(self) -> Tensor:
        """Find rows in the spaces of rows that may be mixed with each other."""
        codes = orient_codes(self.problem, self.found, read_codes(self.problem, self.found))
        parts = may_contain(self.problem, self.found, codes, tick=self.tick)
        rows = rows_in_families(self.problem, self.found, codes, parts, self.generator)
        self.tried += len(rows)
        return rows

    def _choose_again(self, guesses: Tensor) -> None:
        """Choose the rows that fit together best, among the pool and guesses, which chance may explain.

        Exchanges start from the present rows and from the heaviest ones. The present rows were compared with all but
        the new candidates before; the whole pool is tried again only after one of these has improved them.
        """
        problem = self.problem
        new = torch.cat([self.pool[~self._is_judged(self.pool)], guesses])
        heaviest = heaviest_basis(problem, torch.cat([self.pool, self.found]))
        starts = [self.found] if len(new) else []
        if len(heaviest) == problem.rank and not bool(self._is_judged(heaviest).all()):
            starts.append(heaviest)
        self.judged = self.pool
        for start in starts:
            best = exchange_rows(problem, start, new, self.tick)
            if not torch.equal(best, start) or start is heaviest:
                best = exchange_rows(problem, best, torch.cat([self.pool, guesses]), self.tick)
            if (score := joint_score(problem, best)) > self.score:
                self.found, self.score = best, score

    def _is_judged(self, rows: Tensor) -> Tensor:
        """Return which rows took part in the last choice."""
        return are_same(self.problem, rows, self.judged).any(dim=1)

    def _unmixed(self, rows: Tensor) -> Tensor:
        """Return which rows contain no other."""
        return ~self._parts(rows).any(dim=1)

    def _parts(self, rows: Tensor) -> Tensor:
        """Return for each row which others may be mixed into it."""
        problem = self.problem
        if len(rows) == 0:
            return torch.zeros(0, 0, dtype=torch.bool, device=rows.device)
        is_complete = len(rows) == problem.rank
        if is_complete:
            codes = orient_codes(problem, rows, read_codes(problem, rows))
        else:
            codes = fit_codes(problem, rows, tick=self.tick)
        return may_contain(problem, rows, codes, tick=self.tick)

    def pack(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the state as JSON values and tensors."""
        names = ("tried", "idle", "rounds", "asked", "columns", "score", "is_settled", "gains", "used")
        values = {name: copy.copy(getattr(self, name)) for name in names}
        choice = self.inputs.choice
        values |= {"inputs_tried": self.inputs.tried, "has_rivals": None if choice is None else choice.has_rivals}
        return values, {
            "found": self.found,
            "trusted": self.trusted,
            "inputs": self.inputs.codes,
            "log_p_of_inputs": self.inputs.log_p,
            "rows_of_inputs": self.inputs.rows,
            "pool": self.pool,
            "judged": self.judged,
            "weights": self.weights,
            "generator": self.generator.get_state(),
        }

    def unpack(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor], *, keep_inputs: bool = False) -> None:
        """Continue from a packed state; inputs that are proven by now may be kept, as their proof needs no other."""
        for name in values.keys() - {"inputs_tried", "has_rivals"}:
            setattr(self, name, values[name])
        for name in ("found", "trusted", "pool", "weights"):
            setattr(self, name, tensors[name].to(self.problem.rows))
        # Checkpoints of earlier versions lack these, and their scores are on another scale.
        older = {name: tensors.get(name, self.found[:0]) for name in ("judged", "inputs", "rows_of_inputs")}
        self.judged, codes, rows = (tensor.to(self.problem.rows) for tensor in older.values())
        if not keep_inputs:
            self.inputs.codes, self.inputs.rows, self.inputs.tried = codes, rows, values.get("inputs_tried", 0)
            has_rivals = values.get("has_rivals")
            self.inputs.choice = None if has_rivals is None else Choice(has_rivals)
            self.inputs.log_p = tensors.get("log_p_of_inputs", codes.new_zeros(len(codes))).to(codes)
        if self.inputs.are_all:
            self.found = self.trusted = self.inputs.rows
        if self.is_complete:
            self.score = max(joint_score(self.problem, self.found), -sys.float_info.max)
        self.generator.set_state(tensors["generator"])
