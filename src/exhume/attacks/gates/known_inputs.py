"""Inputs that their levels prove while the search goes on, and what they say about rows and other inputs.

For rows ``U`` and inputs ``C`` in coordinates of the singular vectors, with singular values ``S``, the products
``U S⁻¹ Cᵀ`` are 0 for a row and the input of another, and not 0 for a row and its own input. So a row is orthogonal to
all other known inputs, and few zeros determine what is left open. Once all inputs are known, so are all rows.
"""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhume.attacks.gates.fit import fit_codes
from exhume.attacks.gates.mixing import may_contain
from exhume.attacks.gates.pool import heaviest_basis
from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.range_ends import codes_of, touch_range, values_of
from exhume.attacks.gates.readout import missing_directions
from exhume.attacks.gates.rows import are_same, complement, robust_normals
from exhume.attacks.gates.seeds import draw_starts
from exhume.attacks.gates.silence import rank_silence
from exhume.attacks.gates.sums import log_p_one, measure_off_units
from exhume.attacks.gates.zeros import count_chance_zeros, find_zeros
from exhume.attacks.levels import are_pinned, find_levels
from exhume.core.chance import bound_log_tail, log_choices
from exhume.core.devices import numbers_at_once
from exhume.core.progress import Tick, no_tick

INDEPENDENT = 1e-4
"""Least part of an input that others do not span, relative to its norm; less than that is the same input again."""


@dataclass(frozen=True)
class Choice:
    """A choice of all inputs together, by :mod:`exhume.attacks.lattice`."""

    has_rivals: bool
    """Whether another choice is known to fit as well."""


@dataclass(kw_only=True)
class KnownInputs:
    """The inputs that levels prove (:mod:`exhume.attacks.levels`), and the rows that these determine."""

    problem: RowProblem
    tried: int = 0
    """Number of inputs that were tried on levels, and so the number of rows that were tried at most."""

    def __post_init__(self) -> None:
        self.codes = self.rows = self.problem.rows.new_zeros(0, self.problem.rank)
        self.choice: Choice | None = None
        """How they were chosen, all of them together; None: each was proven by itself."""
        self.log_p = self.codes.new_zeros(0)
        """Log p-value of each input, by its values before they were rounded."""

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def are_all(self) -> bool:
        """Whether all inputs are known, which then determine all rows."""
        return len(self.codes) == self.problem.rank

    def add(self, codes: Float[Tensor, "candidate rank"], *, with_rows: bool = False, tick: Tick = no_tick) -> bool:
        """Keep inputs that lie on levels, in coordinates of the basis; return whether there are any new ones.

        ``with_rows`` finds the rows of all known inputs as well; those that were read out from rows do not need it.
        ``tick`` is called between steps; it may raise to stop.
        """
        problem, before = self.problem, len(self.codes)
        if problem.ends is None or problem.rank < 2 or len(codes) == 0:
            return False
        self.tried += len(codes)
        rate = problem.certificate.error_rate
        levels = find_levels(values_of(problem, codes), rate, problem.rank - 1, self.tried)
        if bool(levels.is_proven.any()):
            self._keep(codes_of(problem, levels.nearest[levels.is_proven]), levels.log_p[levels.is_proven])
        is_more = len(self.codes) > before
        if is_more and (with_rows or self.are_all):
            self._find_rows(tick)
        return is_more

    def accept(
        self, codes: Float[Tensor, "candidate rank"], log_p: Float[Tensor, " candidate"], choice: Choice
    ) -> None:
        """Keep inputs that were chosen together, with their log p-values, and find the rows of all."""
        self.choice = choice
        self._keep(codes, log_p)
        if len(self.codes):
            self.tried = max(self.tried, len(self.codes))
            self._find_rows()

    def _keep(self, codes: Float[Tensor, "candidate rank"], log_p: Float[Tensor, " candidate"]) -> None:
        for code, one in zip(codes, log_p, strict=True):
            more = add_independent(self.codes, code[None])
            if len(more) > len(self.codes):
                self.codes, self.log_p = more, torch.cat([self.log_p, one[None].to(self.log_p)])

    def _find_rows(self, tick: Tick = no_tick) -> None:
        rows, log_p = rows_of_known(self.problem, self.codes, tick)
        self.rows = rows if self.are_all else rows[log_p < math.log(self.problem.certificate.error_rate / self.tried)]

    def add_last(self, rows: Float[Tensor, "rank rank"]) -> None:
        """Add the only input that is unknown: known ones determine its row, and all rows determine it.

        One of the present rows is wrong, so each in turn is replaced by the one that known inputs lead to. Whether this
        makes all of them right is decided by the levels of the input.
        """
        problem = self.problem
        if not 0 < len(self.codes) == problem.rank - 1:
            return
        equations = torch.nn.functional.normalize(self.codes / problem.strengths)
        present, last = rows[(rows @ equations.T).abs().argmax(dim=0)], complement(equations).T
        fitted, codes = rows_of_known(problem, self.codes)[0], []
        for place in range(len(fitted)):
            every = torch.cat([present[:place], fitted[place : place + 1], present[place + 1 :], last])
            codes.append(torch.linalg.pinv(every)[:, -1] * problem.strengths)
        self.add(problem.orient(torch.stack(codes) @ problem.basis.T) @ problem.basis)

    def touch(
        self,
        codes: Float[Tensor, "candidate rank"],
        rows: Float[Tensor, "row rank"],
        generator: torch.Generator,
        tick: Tick = no_tick,
    ) -> bool:
        """Move inputs to the ends of their range, and return whether this proves any.

        Every proven input leaves fewer directions to the others, so it is done again, with random inputs beside them.

        Args:
            codes: inputs that may be nearly right.
            rows: rows that are known in other ways.
            generator: the source of chance.
            tick: called between steps; may raise to stop.
        """
        problem, first, starts = self.problem, len(self.codes), codes
        while problem.ends is not None and not self.are_all:
            tick()
            if not self.add(touch_range(problem, starts, rows, tick), with_rows=True, tick=tick):
                break
            rows = heaviest_basis(problem, torch.cat([self.rows, rows]))
            random = draw_starts(problem, *missing_directions(problem, rows), problem.search.seeds // 2, generator)
            starts = torch.cat([codes, random @ problem.basis])
        return len(self.codes) > first

    def touch_rows(self, rows: Float[Tensor, "row rank"], tick: Tick = no_tick) -> bool:
        """Move the inputs of known rows to the ends of their range, where other rows are missing.

        What is missing adds combinations of missing inputs to the input of a row, and nothing else. Returns whether
        this proves any.
        """
        problem = self.problem
        if problem.ends is None or not 0 < len(rows) < problem.rank:
            return False
        unknown = (~are_same(problem, rows, self.rows).any(dim=1)).nonzero()[:, 0].tolist()
        codes, moved = fit_codes(problem, rows, tick=tick), [rows[:0]]
        for row in unknown:
            others = torch.cat([rows[:row], rows[row + 1 :]])
            moved.append(touch_range(problem, codes[row : row + 1], others, tick))
        return self.add(torch.cat(moved), with_rows=True, tick=tick)


def add_independent(known: Float[Tensor, "input rank"], codes: Float[Tensor, "new rank"]) -> Float[Tensor, "more rank"]:
    """Return known inputs and the new ones that these do not span, normalised."""
    for code in torch.nn.functional.normalize(codes):
        span = torch.linalg.qr(known.T).Q
        if float((code - span @ (span.T @ code)).norm()) > INDEPENDENT:
            known = torch.cat([known, code[None]])
    return known


def rows_of_known(
    problem: RowProblem, codes: Float[Tensor, "input rank"], tick: Tick = no_tick
) -> tuple[Float[Tensor, "input rank"], Float[Tensor, " input"]]:
    """Find the rows of known inputs, in coordinates of the basis, from the units that each left off.

    ``tick`` is called between steps; it may raise to stop.

    Returns:
        The rows, and the log probabilities that inputs which were not trained on have such rows (:func:`log_p_row`).
    """
    equations = torch.nn.functional.normalize(codes / problem.strengths)
    own = torch.nn.functional.normalize(torch.linalg.pinv(equations).T)  # each is orthogonal to all other equations
    if len(codes) == problem.rank:
        return own, log_p_row(problem, own, codes, 0)
    within = torch.cat([complement(equations).expand(len(codes), -1, -1), own[:, :, None]], dim=2)
    silence = rank_silence(problem, codes)
    most = int(silence.isfinite().sum(dim=1).max())
    score, units = silence.topk(max(most, 1), dim=1)
    size = max(1, numbers_at_once(codes.device) // (units.shape[1] * problem.rank))
    # Rows of unknown inputs may have the same zeros, so the size of a row is that of its part in its own direction.
    along = torch.eye(within.shape[2]).to(within)[:, -1:]
    rows = []
    for at, counts, where in zip(*(torch.split(each, size) for each in (units, score.isfinite(), within)), strict=True):
        columns = (problem.directions.T[at] * counts[..., None]) @ where
        found = robust_normals(problem, columns, at, along, within=where, tick=tick)
        rows.append((where @ found[..., None])[..., 0])
    every = torch.cat(rows)
    return every, log_p_row(problem, every, codes, problem.rank - len(codes))


def log_p_row(
    problem: RowProblem, rows: Float[Tensor, "input rank"], codes: Float[Tensor, "input rank"], forced: int
) -> Float[Tensor, " input"]:
    """Bound the log probability that a row is zero on so many units that its input leaves off by accident.

    An image may lie in the span of the inputs without being one, as where mixtures of images were trained on. It then
    has no row of its own: what belongs to it is zero on units that it leaves off as often as elsewhere. How often that
    is, is measured on the units that it turns on, and by the density of small entries.

    Args:
        problem: what the rows are rows of.
        rows: one row per input.
        codes: the inputs in coordinates of the basis.
        forced: number of zeros that can be chosen; the union bound accounts for the choice.
    """
    before, after = (codes @ gate.T for gate in problem.gates)
    gated, zeros = problem.gated.bool(), find_zeros(problem, rows)
    is_off = (before < 0) & (after < 0) & gated
    is_on = gated & ~is_off
    elsewhere = ((zeros & is_on).sum(dim=1) + 1) / (is_on.sum(dim=1) + 1)
    by_density = count_chance_zeros(problem, rows, is_strict=True) / problem.units
    chance = torch.maximum(elsewhere.to(by_density), by_density).clamp(max=1 - 1e-9)
    hits = ((zeros & is_off).sum(dim=1) - forced).clamp(min=0)
    trials = (is_off.sum(dim=1) - forced).clamp(min=1)
    tail = bound_log_tail(*(each.double().cpu().numpy() for each in (hits, trials, chance)))
    choices = torch.tensor([log_choices(count, min(forced, count)) for count in is_off.sum(dim=1).tolist()])
    return (torch.as_tensor(tail, dtype=torch.float64) + choices).clamp(max=0.0).to(rows.device)


def are_trained_on(
    problem: RowProblem,
    codes: Float[Tensor, "input rank"],
    others: Float[Tensor, "other rank"],
    *,
    choice: Choice | None = None,
    tick: Tick = no_tick,
) -> Bool[Tensor, " input"]:
    """Return which of the inputs that levels prove were trained on as they are, rather than as parts of others.

    Each must have a row of its own (:func:`log_p_row`) that is the row of one input
    (:func:`~exhume.attacks.gates.sums.log_p_one`). An input that is not pinned by its levels is right if all inputs are
    known and all have such rows: a mixture in place of one input takes the zeros from the rows of its other parts.

    Args:
        problem: what the inputs trained; its ``ends`` must be known.
        codes: the inputs that levels prove, in coordinates of the basis.
        others: all candidates, these among them.
        choice: how the inputs were chosen, where another choice may be right: one in which some inputs are others plus
            differences of further ones. Some rows then contain others, a whole number of times. Where a rival choice is
            known, or some input has no such row, inputs of rows that may contain each other are in doubt.
        tick: called between steps; may raise to stop.
    """
    known, places = _group(codes)
    if len(known) == 0:
        return places >= 0
    rules = problem.certificate
    limit = math.log(rules.error_rate / len(known))
    rows, log_p, log_p_single = _judge_rows(problem, known, tick)
    is_sure = (log_p < limit) & (log_p_single > limit)
    if choice is not None and len(known) == problem.rank:
        if not choice.has_rivals and bool(is_sure.all()):
            return is_sure[places] & (places >= 0)
        whole = replace(problem, certificate=replace(rules, smallest_part=1.0))
        parts = may_contain(whole, rows, known, is_strict=True, tick=tick).cpu()
        is_sure &= ~(parts.any(dim=0) | parts.any(dim=1))
    elif len(known) < problem.rank or not bool(is_sure.all()):
        values, rivals = values_of(problem, known), values_of(problem, others)
        is_sure &= are_pinned(values, rivals, tick)
    return is_sure[places] & (places >= 0)


def log_p_own_rows(
    problem: RowProblem, codes: Float[Tensor, "input rank"], tick: Tick = no_tick
) -> Float[Tensor, " input"]:
    """Bound the log probability that inputs which were not trained on have rows of their own (:func:`log_p_row`).

    It is 0 for an input whose row is not that of one input, and for one that others before it span. ``tick`` is called
    between steps and may raise to stop.
    """
    known, places = _group(codes)
    is_first = torch.zeros(len(codes), dtype=torch.bool)
    for number in range(len(known)):
        is_first[int((places == number).nonzero()[0, 0])] = True
    if len(known) == 0:
        return torch.zeros(len(codes), dtype=torch.float64)
    _, log_p, log_p_single = _judge_rows(problem, known, tick)
    log_p = torch.where(log_p_single > math.log(problem.certificate.error_rate / len(known)), log_p, 0.0)
    return torch.where(is_first, log_p[places], 0.0)


def _group(codes: Float[Tensor, "input rank"]) -> tuple[Float[Tensor, "known rank"], Int[Tensor, " input"]]:
    """Return the inputs that others before them do not span, normalised, and which of them each input is; -1: none."""
    known, places = codes[:0], torch.full((len(codes),), -1)
    for place, code in enumerate(torch.nn.functional.normalize(codes)):
        same = ((known - code).norm(dim=1) < INDEPENDENT).nonzero()[:, 0].tolist()
        more = known if same else add_independent(known, code[None])
        places[place] = same[0] if same else len(known) if len(more) > len(known) else -1
        known = more
    return known, places


def _judge_rows(
    problem: RowProblem, known: Float[Tensor, "input rank"], tick: Tick
) -> tuple[Float[Tensor, "input rank"], Float[Tensor, " input"], Float[Tensor, " input"]]:
    """Return the rows of inputs, the log p-values of having them, and those of being the row of one input."""
    rows, log_p = rows_of_known(problem, known, tick)
    inputs = known @ problem.basis.T
    if problem.has_bias:
        inputs = inputs / inputs[:, -1:]
    units = measure_off_units(problem, rows, inputs, tick)
    return rows, log_p.cpu(), log_p_one(units, problem.certificate.misjudged)
