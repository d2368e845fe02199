"""Exact, certified recovery of training inputs from the first layer's weight change."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from exhume.attacks.attack import Attack
from exhume.attacks.first_layer import FLAT_SIDED, backward_signals, first_layer
from exhume.attacks.gate_check import (
    COVERED,
    PRECISE,
    SINGLE_INPUT,
    agreement,
    check,
    coverage,
    entangled,
    fitted_inputs,
    log_p_generic,
    missing_directions,
    reduced,
    refined,
    sharpen,
    shows_zero,
    without_culprits,
)
from exhume.attacks.gate_search import RowProblem, SearchSettings, random_starts, row_problem, rows_of, search
from exhume.attacks.subspace import InputSubspace, input_subspace
from exhume.errors import Refusal
from exhume.progress import Progress
from exhume.records import AttackerView, Outcome, Reconstruction

OUTSIDE = 0.05
"""By which part of their range values may lie outside of it: the weights' noise."""
NEARLY_AS_SPARSE = 0.8
"""How many zeros, relative to rows found before, a row must have; those on their way to a true row have fewer."""
SAME_ROW = 0.98
"""Rows with a larger cosine are the same row found twice."""
STARTS_PER_ROW, LEAST_STARTS = 8, 32
"""How many candidates a missing row is worth, and how many a round takes at least."""
FEW_MISSING = 3
"""With so few rows missing, their inputs are known well enough to be taken at their word."""
WORTH_ANOTHER_LOOK = 24
"""How many candidates a round are taken further."""


@dataclass(frozen=True, kw_only=True)
class GateCertificate(Attack):
    """Find every training input exactly, and prove each one without seeing any data.

    From the change of the first dense layer under (S)GD: its rank is the training-set size, its column space holds the
    inputs, and the zeros that ReLU leaves in its rows single out each of them (:mod:`exhume.attacks.gate_search`). An
    input is certified when the gates it implies tell where its row is zero far better than chance allows
    (:mod:`exhume.attacks.gate_check`).
    """

    starts: int | None = None
    """Candidates a round, searched all at once; None: three for every training input."""
    rounds: int = 100
    patience: int = 12
    """Stop after so many rounds that found nothing new."""
    error_rate: float = 1e-3
    """The chance, over the whole run, of certifying anything that was not trained on."""
    warm_start: Attack | None = None
    """An attack whose reconstructions are tried before random starts."""

    def check(self, view: AttackerView) -> None:
        """Refuse views whose first trained layer is not dense with a flat-sided activation."""
        layer = first_layer(view)
        if layer.activation not in FLAT_SIDED:
            follows = "no activation" if layer.activation is None else layer.activation
            raise Refusal(
                f"The certificate needs an activation with an exactly flat side (ReLU) after layer {layer.name!r}, "
                f"and {follows} follows it."
            )
        if self.warm_start is not None:
            self.warm_start.check(view)

    def recover(
        self, view: AttackerView, *, generator: torch.Generator, progress: Progress, checkpoint: Path | None
    ) -> Reconstruction:
        """Search in rounds until every row is found or nothing new turns up, then read out and certify."""
        subspace = input_subspace(view)
        assert view.initial is not None
        problem = row_problem(
            subspace, tuple(backward_signals(view, weights, subspace.layer) for weights in (view.initial, view.final))
        )
        found = torch.zeros(0, problem.rank).to(problem.rows)
        tried, idle = 0, 0
        warm = self._warm_starts(view, problem, generator, progress)
        for round_number in range(self.rounds):
            progress("recover", len(found), problem.rank, f"round {round_number + 1}")
            directions, strengths = missing_directions(problem, found)
            most = max(64, 3 * problem.rank) if self.starts is None else self.starts
            count = min(most, max(LEAST_STARTS, STARTS_PER_ROW * len(strengths)))
            starts = random_starts(problem, directions, strengths, count, generator)
            if warm is not None and round_number == 0:
                starts = torch.cat([warm, starts])
            rows, _ = search(problem, starts, directions, STRATEGIES[round_number % len(STRATEGIES)])
            if directions.shape[1] <= FEW_MISSING:
                rows = torch.cat([rows, rows_of(problem, starts, generator)])
            tried += len(rows)
            before = len(found)
            found = joined(problem, found, rows, directions, math.log(self.error_rate / tried), generator)
            idle = 0 if len(found) > before else idle + 1
            if len(found) == problem.rank or idle == self.patience // 2:
                found = without_culprits(problem, _distinct(refined(problem, found, generator)))
            if len(found) == problem.rank or idle >= self.patience:
                break
        progress("recover", len(found), problem.rank, "certify")
        return self._result(view, subspace, problem, found, max(tried, 1))

    def _warm_starts(
        self, view: AttackerView, problem: RowProblem, generator: torch.Generator, progress: Progress
    ) -> Tensor | None:
        if self.warm_start is None:
            return None
        found = self.warm_start.recover(view, generator=generator, progress=progress, checkpoint=None)
        flat = view.to_model(found.inputs.to(view.device)).reshape(len(found), -1).double()
        if problem.has_bias:
            flat = torch.cat([flat, torch.ones_like(flat[:, :1])], dim=1)
        return flat

    def _result(
        self, view: AttackerView, subspace: InputSubspace, problem: RowProblem, rows: Tensor, tried: int
    ) -> Reconstruction:
        checked = check(problem, rows)
        inputs = checked.inputs[:, : subspace.layer.input_size]
        # Both must be no accident: the zeros of the row, and that the input read out for it tells where they are.
        log_p = torch.maximum(checked.log_p, log_p_generic(problem, rows))
        log_p = (log_p + math.log(tried)).clamp(max=0.0)
        # With rows missing an input is only approximate, and with one wrong row nobody can be sure of any.
        # Frozen features have no known range to check them against, so they are returned without a proof.
        is_sound = checked.is_complete and bool(checked.is_single.all()) and subspace.layer.reads_input
        is_precise = checked.is_exact & (checked.precision <= PRECISE)
        is_exact = _inside(view, inputs) & is_precise & ~entangled(problem, rows)
        certified = (log_p < math.log(self.error_rate)) & is_exact.cpu() & is_sound
        count = int(certified.sum())
        outcome = Outcome.PARTIAL if count else Outcome.NOTHING_FOUND
        return Reconstruction(
            inputs=view.to_pixels(inputs.float()) if subspace.layer.reads_input else inputs.float(),
            certified=certified,
            confidence=checked.agreement.float(),
            p_values=log_p.exp(),
            outcome=Outcome.CERTIFIED if count == problem.rank else outcome,
            message=f"{count} of {problem.rank} training inputs are certified.",
            diagnostics=subspace.describe()
            | {
                "agreement": checked.agreement.tolist(),
                "contradictions": checked.contradictions.tolist(),
                "candidates_tried": tried,
            },
        )


def _inside(view: AttackerView, inputs: Tensor) -> Tensor:
    """Tell which inputs lie in the range that inputs of this network have; one read out wrongly seldom does."""
    box = view.model_box()
    if box is None or inputs.shape[1] != view.input_size:
        return torch.ones(len(inputs), dtype=torch.bool, device=inputs.device)
    low, high = box
    slack = OUTSIDE * (high - low)
    return ((inputs > low - slack) & (inputs < high + slack)).all(dim=1)


def joined(
    problem: RowProblem,
    found: Tensor,
    candidates: Tensor,
    directions: Tensor,
    limit: float,
    generator: torch.Generator,
) -> Tensor:
    """Add to the found rows the candidates that are new and no chance finding (a log p-value below ``limit``).

    Sparsest first, and each freed of the rows that are known already; in return the known ones are freed of it.
    """
    rough = agreement(problem, candidates, fitted_inputs(problem, candidates, directions))
    order = rough.argsort(descending=True)
    likely = _distinct(candidates[order[rough[order] > SINGLE_INPUT - 0.1]])[:WORTH_ANOTHER_LOOK]
    if len(likely) == 0:
        return found
    # Once more from the inputs these candidates imply: what was on its way to a true row arrives there.
    again = rows_of(problem, fitted_inputs(problem, likely, directions), generator)
    sharp = _distinct(_sparsest_first(problem, sharpen(problem, torch.cat([likely, again]))))
    sharp = _distinct(sharpen(problem, reduced(problem, reduced(problem, sharp, found), sharp), steps=4))
    sharp = sharp[_passes(problem, sharp, found, directions, limit)]
    merged = _distinct(torch.cat([found, sharp]))[: problem.rank]
    if len(merged) > len(found):
        merged = _distinct(sharpen(problem, reduced(problem, merged, merged), steps=4))
    return merged


def _sparsest_first(problem: RowProblem, rows: Tensor) -> Tensor:
    return rows[shows_zero(problem, rows).sum(dim=1).argsort(descending=True)]


def _passes(problem: RowProblem, rows: Tensor, found: Tensor, directions: Tensor, limit: float) -> Tensor:
    """Tell which rows have more zeros than chance gives, nearly as many as found ones, where one input puts them."""
    inputs = fitted_inputs(problem, rows, directions)
    is_single = (agreement(problem, rows, inputs) >= SINGLE_INPUT) & (coverage(problem, rows, inputs) >= COVERED)
    if len(found):
        usual = shows_zero(problem, found).sum(dim=1).double().median()
        is_single &= shows_zero(problem, rows).sum(dim=1) >= NEARLY_AS_SPARSE * usual
    return is_single & (log_p_generic(problem, rows).to(rows) < limit)


def _distinct(rows: Tensor) -> Tensor:
    """Keep the first of rows that are the same but for sign."""
    same = (rows @ rows.T).abs() > SAME_ROW
    kept: list[int] = []
    for index in range(len(rows)):
        if not bool(same[index, kept].any()):
            kept.append(index)
    return rows[kept]


STEERED = SearchSettings()
BRIEFLY_STEERED = SearchSettings(inverse_iterations=2, first_inverse_iterations=2, iterations=12, steered=3)
BY_GATES = SearchSettings(
    first_inverse_iterations=8, inverse_iterations=2, steered=0, iterations=12, first_sharpness=30.0, widths=(0.1, 0.01)
)
NARROWLY = replace(BY_GATES, row_steps=6, widths=(0.05, 0.01))
STRATEGIES = (STEERED, BY_GATES, BRIEFLY_STEERED, NARROWLY)
"""Ways to search, taken in turn: what one misses another finds. Steering helps where training was lazy and inputs
differ much; gates alone, believed firmly, tell similar inputs apart."""
