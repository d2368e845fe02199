"""Exact, certified recovery of training inputs from the first layer's weight change."""

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from exhume.attacks.attack import Attack
from exhume.attacks.first_layer import FLAT_SIDED, backward_signals, first_layer
from exhume.attacks.gate_check import (
    SINGLE_INPUT,
    agreement,
    check,
    fitted_inputs,
    log_p_generic,
    missing_directions,
    reduced,
    sharpen,
    shows_zero,
)
from exhume.attacks.gate_search import RowProblem, SearchSettings, random_starts, row_problem, search
from exhume.attacks.subspace import InputSubspace, input_subspace
from exhume.errors import Refusal
from exhume.progress import Progress
from exhume.records import AttackerView, Outcome, Reconstruction

SAME_ROW = 0.98
"""Rows with a larger cosine are the same row found twice."""
STARTS_PER_ROW, LEAST_STARTS = 8, 32
"""How many candidates a missing row is worth, and how many a round takes at least."""
PRECISE = 0.05
"""How far an input that missing rows leave partly open may move between halves of the units and still be known."""


@dataclass(frozen=True, kw_only=True)
class GateCertificate(Attack):
    """Find every training input exactly, and prove each one without seeing any data.

    From the change of the first dense layer under (S)GD: its rank is the training-set size, its column space holds the
    inputs, and the zeros that ReLU leaves in its rows single out each of them (:mod:`exhume.attacks.gate_search`). An
    input is certified when the gates it implies tell where its row is zero far better than chance allows
    (:mod:`exhume.attacks.gate_check`).
    """

    starts: int = 256
    """Candidates a round; a round searches all of them at once."""
    rounds: int = 60
    patience: int = 8
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
            count = min(self.starts, max(LEAST_STARTS, STARTS_PER_ROW * len(strengths)))
            starts = random_starts(problem, directions, strengths, count, generator)
            if warm is not None and round_number == 0:
                starts = torch.cat([warm, starts])
            rows, _ = search(problem, starts, directions, STRATEGIES[round_number % len(STRATEGIES)])
            tried += len(rows)
            before = len(found)
            found = joined(problem, found, rows, directions, math.log(self.error_rate / tried))
            idle = 0 if len(found) > before else idle + 1
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
        certified = (log_p < math.log(self.error_rate)) & (checked.is_single & (checked.spread < PRECISE)).cpu()
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
            | {"agreement": checked.agreement.tolist(), "spread": checked.spread.tolist(), "candidates_tried": tried},
        )


def joined(problem: RowProblem, found: Tensor, candidates: Tensor, directions: Tensor, limit: float) -> Tensor:
    """Add to the found rows the candidates that are new and no chance finding (a log p-value below ``limit``).

    Sparsest first, and each freed of the rows that are known already; in return the known ones are freed of it.
    """
    rough = agreement(problem, candidates, fitted_inputs(problem, candidates, directions))
    likely = candidates[rough > SINGLE_INPUT - 0.1]
    if len(likely) == 0:
        return found
    sharp = _distinct(sharpen(problem, likely))
    sharp = sharp[shows_zero(problem, sharp).sum(dim=1).argsort(descending=True)]
    sharp = _distinct(sharpen(problem, reduced(problem, reduced(problem, sharp, found), sharp), steps=4))
    agreed = agreement(problem, sharp, fitted_inputs(problem, sharp, directions))
    passes = (log_p_generic(problem, sharp).to(agreed) < limit) & (agreed >= SINGLE_INPUT)
    merged = _distinct(torch.cat([found, sharp[passes]]))[: problem.rank]
    if len(merged) == len(found):
        return found
    return _distinct(sharpen(problem, reduced(problem, merged, merged), steps=4))


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
BY_GATES = SearchSettings(first_inverse_iterations=8, inverse_iterations=2, steered=0, iterations=12)
STRATEGIES = (STEERED, BY_GATES, BRIEFLY_STEERED, BY_GATES)
"""Ways to search, taken in turn: what one misses another finds."""
