"""Exact, certified recovery of training inputs from the first layer's weight change."""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.attack import Attack
from exhume.attacks.gates.check import PRECISE, check, entangled, log_p_generic
from exhume.attacks.gates.exchange import shifts
from exhume.attacks.gates.near_duplicates import rivals
from exhume.attacks.gates.rounds import LATE, Hunt
from exhume.attacks.gates.search import RowProblem, row_problem
from exhume.clues.clues import clues_of
from exhume.clues.first_layer import FLAT_SIDED, backward_signals
from exhume.clues.subspace import InputSubspace
from exhume.core.errors import ExhumeError, Refusal
from exhume.core.run_context import STOPS, RunContext
from exhume.core.text import count_noun
from exhume.records import AttackerView, Outcome, Reconstruction

OUTSIDE = 0.05
"""By which part of their range values may lie outside of it: the weights' noise."""


TOUCHES, FEW_TOUCHING = 1e-3, 3
"""How close, relative to its size, a value comes to an end of its range to touch it, and how many prove a scale."""


@dataclass(frozen=True, kw_only=True)
class GateCertificate(Attack):
    """Find every training input exactly, and prove each one without seeing any data.

    From the change of the first dense layer under (S)GD: its rank is the training-set size, its column space holds the
    inputs, and the zeros that ReLU leaves in its rows single out each of them (:mod:`exhume.attacks.gates.search`). An
    input is certified when the gates it implies tell where its row is zero far better than chance allows
    (:mod:`exhume.attacks.gates.check`).
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

    def __post_init__(self) -> None:
        for name in ("starts", "rounds", "patience"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ExhumeError(f"GateCertificate needs {name} of at least 1, not {value}.")
        if not 0 < self.error_rate < 1:
            raise ExhumeError(f"GateCertificate needs an error_rate between 0 and 1, not {self.error_rate}.")

    def check(self, view: AttackerView) -> None:
        """Refuse views whose first trained layer is not dense with a flat-sided activation."""
        layer = clues_of(view).require_first_layer()
        if layer.activation not in FLAT_SIDED:
            follows = "no activation" if layer.activation is None else layer.activation
            raise Refusal(
                f"The certificate needs an activation with an exactly flat side (ReLU) after layer {layer.name!r}, "
                f"and {follows} follows it."
            )
        if self.warm_start is not None:
            self.warm_start.check(view)

    def recover(self, view: AttackerView, context: RunContext) -> Reconstruction:
        """Search in rounds until every row is found or nothing new turns up, then read out and certify."""
        subspace = clues_of(view).require_subspace()
        assert view.initial is not None
        problem = row_problem(
            subspace, tuple(backward_signals(view, weights, subspace.layer) for weights in (view.initial, view.final))
        )
        hunt = Hunt(
            problem=problem,
            generator=context.generator,
            starts=self.starts,
            error_rate=self.error_rate,
            found=torch.zeros(0, problem.rank).to(problem.rows),
            warm=torch.zeros(0, len(problem.basis)).to(problem.rows),
        )
        about = {"attack": repr(self), "seed": context.generator.initial_seed()}
        saved = context.saved("hunt", about, problem.rows, problem.basis)
        if saved is not None and (state := saved.load()) is not None:
            hunt.unpack(*state)
        if self.warm_start is not None and hunt.rounds == 0:
            hunt.warm = self._warm_starts(self.warm_start, view, problem, context)
        hunt.tick = lambda: context.report("recover", len(hunt.found), problem.rank, f"round {hunt.rounds + 1}")
        while hunt.rounds < self.rounds and not hunt.is_stuck(self.patience) and not hunt.is_complete:
            whole = hunt.pack()
            try:
                hunt.tick()
                hunt.round()
                if hunt.is_complete or hunt.idle in (LATE, self.patience // 2):
                    hunt.settle()
            except STOPS:  # the round is lost, and nothing before it
                if saved is not None and whole[0]["rounds"]:
                    saved.save(*whole)
                raise
            if saved is not None and saved.due():
                saved.save(*hunt.pack())
        context.progress("recover", len(hunt.found), problem.rank, "certify")
        return self._result(view, subspace, hunt)

    def _warm_starts(self, attack: Attack, view: AttackerView, problem: RowProblem, context: RunContext) -> Tensor:
        found = attack.recover(view, replace(context, checkpoint=None))
        flat = view.to_model(found.inputs.to(view.device)).reshape(len(found), -1).double()
        if problem.has_bias:
            flat = torch.cat([flat, torch.ones_like(flat[:, :1])], dim=1)
        return flat

    def _result(self, view: AttackerView, subspace: InputSubspace, hunt: Hunt) -> Reconstruction:
        problem, rows, tried = hunt.problem, hunt.found, max(hunt.tried, 1)
        checked = check(problem, rows)
        inputs = checked.inputs[:, : subspace.layer.input_size]
        # Both must be no accident: the zeros of the row, and that the input read out for it tells where they are.
        log_p = torch.maximum(checked.log_p, log_p_generic(problem, rows))
        log_p = (log_p + math.log(tried)).clamp(max=0.0)
        scale, is_scaled = (1.0, True) if problem.has_bias else filling(view, inputs)
        inputs = inputs * scale
        certified = (log_p < math.log(self.error_rate)) & (checked.is_exact & checked.is_single).cpu()
        certified &= (_inside(view, inputs) & is_scaled & ~entangled(problem, rows)).cpu()
        # With rows missing an input is only approximate, and with an implausible one nobody can be sure of any.
        # Frozen features have no known range to check them against, so they are returned without a proof.
        certified &= checked.is_complete and bool(checked.is_plausible.all()) and subspace.layer.reads_input
        if certified.any():
            moves = shifts(problem, rows, rivals(problem, rows, hunt.generator))
            certified &= ((torch.maximum(checked.precision, moves)[:, None] * scale)[:, 0] <= PRECISE).cpu()
        count = int(certified.sum())
        outcome = Outcome.PARTIAL if count else Outcome.NOTHING_FOUND
        return Reconstruction(
            inputs=view.to_pixels(inputs.float()) if subspace.layer.reads_input else inputs.float(),
            certified=certified,
            confidence=checked.agreement.float(),
            p_values=log_p.exp(),
            outcome=Outcome.CERTIFIED if count == problem.rank else outcome,
            message=f"{count} of {count_noun(problem.rank, 'training input')} "
            f"{'is' if count == 1 else 'are'} certified.",
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


def filling(
    view: AttackerView, inputs: Float[Tensor, "row value"]
) -> tuple[Float[Tensor, "row 1"], Bool[Tensor, " row"]]:
    """Find the scale of inputs, which a layer without a bias leaves open: the one that fills the range inputs have.

    Returns:
        The largest scale that fits, and for which inputs several values touch the range's ends there: a coincidence at
        any scale but the true one.
    """
    box = view.model_box()
    if box is None or inputs.shape[1] != view.input_size:
        return torch.ones_like(inputs[:, :1]), torch.zeros(len(inputs), dtype=torch.bool, device=inputs.device)
    low, high = box
    end = torch.where(inputs < 0, low.to(inputs), high.to(inputs))
    solid = (inputs.abs() > 1e-3 * inputs.abs().amax(dim=1, keepdim=True)) & (end.abs() > 1e-6)
    scales = torch.where(solid, end / inputs, torch.full_like(inputs, torch.inf))
    largest = scales.amin(dim=1, keepdim=True)
    return largest, (scales <= largest * (1 + TOUCHES)).sum(dim=1) >= FEW_TOUCHING
