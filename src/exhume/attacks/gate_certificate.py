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
    log_p_value,
    missing_directions,
    prune,
    sharpen,
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
"""How far an input that missing rows leave partly open may move between halves of the units and still count as known."""


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
        found = Found(rows=torch.zeros(0, problem.rank).to(problem.rows), solo=torch.zeros(0).to(problem.rows))
        tried, idle = 0, 0
        warm = self._warm_starts(view, problem, generator, progress)
        for round_number in range(self.rounds):
            progress("recover", len(found.rows), problem.rank, f"round {round_number + 1}")
            directions, strengths = missing_directions(problem, found.rows)
            count = min(self.starts, max(LEAST_STARTS, STARTS_PER_ROW * len(strengths)))
            starts = random_starts(problem, directions, strengths, count, generator)
            if warm is not None and round_number == 0:
                starts = torch.cat([warm, starts])
            rows, _ = search(problem, starts, directions, STRATEGIES[round_number % len(STRATEGIES)])
            tried += len(rows)
            before = len(found.rows)
            found = found.joined(problem, rows, directions, math.log(self.error_rate / tried))
            idle = 0 if len(found.rows) > before else idle + 1
            if len(found.rows) == problem.rank or idle == self.patience // 2:
                kept = prune(problem, found.rows, found.solo)
                found = Found(rows=found.rows[kept], solo=found.solo[kept])
            if len(found.rows) == problem.rank or idle >= self.patience:
                break
        progress("recover", len(found.rows), problem.rank, "certify")
        return self._result(view, subspace, problem, found.rows, max(tried, 1))

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
        log_p = (checked.log_p + math.log(tried)).clamp(max=0.0)
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


@dataclass(frozen=True, kw_only=True)
class Found:
    """The rows found so far, and how well each agreed on its own when it was found."""

    rows: Tensor
    solo: Tensor

    def joined(self, problem: RowProblem, candidates: Tensor, directions: Tensor, limit: float) -> "Found":
        """Add the candidates that agree with one input beyond chance (a log p-value below ``limit``) and are new."""
        rough = agreement(problem, candidates, fitted_inputs(problem, candidates, directions))
        likely = candidates[rough > SINGLE_INPUT - 0.1]
        if len(likely) == 0:
            return self
        sharp = sharpen(problem, likely)
        agreed = agreement(problem, sharp, fitted_inputs(problem, sharp, directions))
        chance = log_p_value(problem, sharp, agreed, directions.shape[1]).to(agreed)
        rows, solo = self.rows, self.solo
        for index in agreed.argsort(descending=True).tolist():
            is_new = len(rows) == 0 or float((rows @ sharp[index]).abs().max()) < SAME_ROW
            if agreed[index] >= SINGLE_INPUT and chance[index] < limit and is_new and len(rows) < problem.rank:
                rows = torch.cat([rows, sharp[index : index + 1]])
                solo = torch.cat([solo, agreed[index : index + 1]])
        return Found(rows=rows, solo=solo)


STEERED = SearchSettings()
BRIEFLY_STEERED = SearchSettings(inverse_iterations=2, first_inverse_iterations=2, iterations=12, steered=3)
BY_GATES = SearchSettings(first_inverse_iterations=8, inverse_iterations=2, steered=0, iterations=12)
STRATEGIES = (STEERED, BY_GATES, BRIEFLY_STEERED, BY_GATES)
"""Ways to search, taken in turn: what one misses another finds."""
