"""The base of attacks that need only the final weights: settings, refusals, and the search from plan to result."""

from abc import abstractmethod
from dataclasses import replace
from typing import Annotated, Any

import torch
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from exhume.attacks.attack import Attack
from exhume.attacks.stationarity.candidates import Candidates, collect_candidates, to_pixels
from exhume.attacks.stationarity.multipliers import Multipliers
from exhume.attacks.stationarity.problem import StationarityProblem
from exhume.attacks.stationarity.roughness import roughness_form
from exhume.attacks.stationarity.runs import KNOBS, FinishedRuns, Range
from exhume.attacks.stationarity.stages import SearchPlan, SearchStages
from exhume.clues.clues import clues_of
from exhume.clues.search_space import SearchSpace
from exhume.clues.subspace import InputSubspace
from exhume.core.errors import Refusal
from exhume.core.run_context import RunContext
from exhume.core.settings import settings
from exhume.optimise.precision import AnyPrecision, dtype_of, precision_note
from exhume.records import AttackerView, Outcome, Reconstruction, count_outputs

Weight = Annotated[float, Field(ge=0)]

EXPLAINED = 0.1
"""Unexplained fraction of the squared weights up to which a search counts as converged."""
ALIGNMENT = 8
"""Number of coordinates is a multiple of this: 16 bytes in float16, the pieces in which tensor cores read."""
UNIT_PROBES = 16
"""Number of random inputs whose gradients determine the unit of multipliers."""


@settings
class FinalWeights(Attack):
    """Explain the final weights themselves as a sum of gradients at training inputs.

    The settings that decide between success and failure are searched: ``trials`` sets of them are drawn from their
    ranges and halved by the unexplained fraction of the weights, which is all an attacker can measure. The winners run
    again from ``restarts`` independent starts; candidates that several runs agree on are likely real.
    """

    candidates: PositiveInt | None = None
    """Number of inputs to look for; None: ``oversampling`` per training input, whose number is the rank of the first
    layer where that shows."""
    oversampling: PositiveFloat = 1.0
    within_span: bool | None = None
    """Whether to search only the span of the first layer's weights; None: wherever the span shows."""
    trials: PositiveInt = 8
    """Sets of settings to draw; 1: no search, every setting is the middle of its range."""
    trial_steps: PositiveInt = 200
    """Steps per trial in the first round; every later round doubles the steps and halves the trials."""
    winners: PositiveInt = 2
    """Sets of settings that survive the trials."""
    restarts: PositiveInt = 6
    """Runs from new starts with the winners' settings, in turn."""
    steps: PositiveInt = 1000
    """Steps per run."""
    runs_at_once: PositiveInt = 64
    """Runs that share one program; fewer need less memory."""
    at_once: PositiveInt | None = None
    """Number of candidates per run computed at a time, so that memory does not grow with their number; None: all.

    The result is the same; a step costs about half as much again.
    """
    splits: NonNegativeInt = 0
    """Number of times that every candidate is split in two, along the direction in which that lowers the objective most
    (:mod:`exhume.optimise.splitting`), evenly spread over the steps of a winner's run. The run starts with
    ``candidates`` over ``2^splits``, at least one per label, and ends with all of them."""
    input_rate: Range = (0.01, 0.1)
    """Change of an input value per step, drawn between the two ends, as all ranges."""
    multiplier_rate: Range = (0.01, 0.1)
    """Change of a multiplier per step."""
    init_std: Range = (0.02, 0.2)
    """Standard deviation of initial candidates around the centre, in pixel units."""
    floor: Range = (0.01, 0.5)
    """Value below which multipliers are penalised, in units of their natural size."""
    sharpness: Range = (30.0, 1000.0)
    """Sharpness ``a`` of the gates ``sigmoid(a·z)`` that replace the derivative of a ReLU in backpropagation."""
    balance: Weight = 0.0
    """Equalisation of strong and weak directions of the first layer, from 0 (none) to 1 (all count alike)."""
    upper_layers: Weight | None = None
    """Weight of squared residuals above the first layer; None: 0 where those layers still show their random start and
    the first does not, else 1."""
    box_weight: Weight = 10.0
    """Weight of values outside the pixel range, relative to a result that explains nothing."""
    floor_weight: Weight = 5.0
    """Weight of multipliers below the floor, relative to a result that explains nothing."""
    smoothness: Weight = 0.0
    """Weight of the mean squared difference of neighbouring pixels, relative to a result that explains nothing."""
    colour: Weight = 0.0
    """Weight of the squared difference of neighbouring colour channels, relative to that of neighbouring pixels."""
    edges: bool = True
    """Whether to look for points where the edges of many units meet around the candidates: a training input lies
    there."""
    prove: bool = False
    """Whether to certify points where enough edges meet, in networks with two hidden layers or more. The proof is
    experimental: its rules were made stricter after a false certificate (``benchmarks/edge_controls.py``)."""
    error_rate: Annotated[float, Field(gt=0, lt=1)] = 1e-3
    """Probability, over the whole run, of certifying anything that was not trained on."""
    rescale: bool | None = None
    """Whether to stretch every candidate over the pixel range; None: where the first layer does not determine the scale
    of inputs, since a larger input with a smaller multiplier then explains the same weights."""
    similar: float = 0.95
    """Least correlation of candidates of different runs that count as the same and are averaged."""
    precision: AnyPrecision = "float32"
    """``tf32`` lets a GPU round the factors of matrix products, which is several times faster and less exact.
    ``half`` computes everything there in float16, which has the same resolution and is faster again. ``mixed`` is
    ``tf32`` until the last fifth of the steps of every round. On a CPU with bfloat16 products ``half`` and ``mixed``
    round their factors to it; on any other CPU they are ``float32``, with a note among the diagnostics."""

    @abstractmethod
    def multipliers(self, view: AttackerView, candidates: int, span: InputSubspace | None) -> Multipliers:
        """Return the family of multipliers."""

    @property
    @abstractmethod
    def natural_unit(self) -> bool:
        """Whether multipliers need a unit that suits the weights; otherwise they have their own scale."""

    def check(self, view: AttackerView) -> None:
        """Refuse linearised views, zero weights, and an unknown number of inputs."""
        if view.linearised:
            raise Refusal(f"{type(self).__name__} attacks the network itself, and this view is linearised.")
        if all(not bool(weight.any()) for weight in view.final.values()):
            raise Refusal("All final weights are zero: there is nothing to explain.")
        if self.within_span or self.candidates is None:
            self._span(view)

    def recover(self, view: AttackerView, context: RunContext) -> Reconstruction:
        """Select settings, run the winners from new starts, and pool their candidates."""
        span = self._span(view)
        candidates = self.candidates
        if candidates is None:
            assert span is not None
            candidates = max(2, round(self.oversampling * span.rank))
        problem = self._problem(view, candidates, span, context.generator)
        outputs = count_outputs(view.model, view.input_shape)
        stages = SearchStages(self._plan(), problem, candidates, outputs, context)
        knobs, trials, cut_runs = stages.select_settings()
        runs = stages.run_winners(knobs) if cut_runs is None else cut_runs
        stages.discard_checkpoints()
        found = collect_candidates(
            view,
            problem,
            runs,
            similar=self.similar,
            edges=self.edges,
            error_rate=self.error_rate if self.prove else None,
            context=context,
        )
        diagnostics = {
            "residuals": runs.residuals.tolist(),
            "kept_runs": found.kept_runs.tolist(),
            "trials": trials,
            "settings": [knobs.row(number) for number in range(len(knobs))],
            "searched_dimensions": problem.space.dimension,
            **({} if span is None else span.describe_size()),
            **precision_note(self.precision, view.device),
        }
        return self._result(view, problem, runs, found, diagnostics)

    def _span(self, view: AttackerView) -> InputSubspace | None:
        """Return the span of the inputs where it is needed and shows.

        Raises:
            Refusal: when the span does not show and the settings need it.
        """
        if self.within_span is False and self.candidates is not None:
            return None
        span = clues_of(view).span
        if span is None and self.within_span:
            raise Refusal("The first layer does not show the span of the inputs; search with within_span=None.")
        if span is None and self.candidates is None:
            raise Refusal(
                "The size of the training set cannot be read off these weights; set candidates to about twice what it "
                "may be."
            )
        return span

    def _upper_layers(self, view: AttackerView) -> float:
        if self.upper_layers is not None:
            return self.upper_layers
        return 0.0 if clues_of(view).upper_layers_look_random else 1.0

    def _problem(
        self, view: AttackerView, candidates: int, span: InputSubspace | None, generator: torch.Generator
    ) -> StationarityProblem:
        dtype = dtype_of(self.precision)
        space = SearchSpace(view.input_size)
        if span is not None and self.within_span is not False and span.layer.reads_input:
            space = SearchSpace.spanned_by(span, dtype).aligned(ALIGNMENT)
        problem = StationarityProblem.of(
            view,
            space,
            self.multipliers(view, candidates, span),
            balance=self.balance,
            upper_layers=self._upper_layers(view),
            dtype=dtype,
        )
        if self.natural_unit:
            probes = torch.randn(UNIT_PROBES, view.input_size, generator=generator).to(problem.target[0])
            problem = problem.with_natural_unit(space.project(self.init_std[1] * probes), candidates)
        size_per_candidate = problem.size / candidates
        rough = roughness_form(space, view.input_shape, self.colour) if self.smoothness > 0 else None
        return replace(
            problem,
            box_weight=self.box_weight * size_per_candidate,
            floor_weight=self.floor_weight * size_per_candidate,
            at_once=self.at_once,
            roughness=None if rough is None else (self.smoothness * size_per_candidate * rough).to(problem.target[0]),
        ).compacted(candidates)

    def _plan(self) -> SearchPlan:
        return SearchPlan(
            attack=repr(self),
            ranges={name: getattr(self, name) for name in KNOBS},
            trials=self.trials,
            trial_steps=self.trial_steps,
            winners=self.winners,
            restarts=self.restarts,
            steps=self.steps,
            runs_at_once=self.runs_at_once,
            precision=self.precision,
            splits=self.splits,
        )

    def _result(
        self,
        view: AttackerView,
        problem: StationarityProblem,
        runs: FinishedRuns,
        found: Candidates,
        diagnostics: dict[str, Any],
    ) -> Reconstruction:
        unexplained = float(runs.residuals.min())
        proven = int(found.certified.sum())
        outcome = Outcome.CONVERGED if unexplained <= EXPLAINED else Outcome.STALLED
        outcome = Outcome.PARTIAL if proven else outcome
        stretch = self.rescale if self.rescale is not None else problem.space.constant is None
        exact, pooled = found.inputs[: found.exact], found.inputs[found.exact :]
        pixels = torch.cat([to_pixels(view, exact, stretch=False), to_pixels(view, pooled, stretch=stretch)])
        upper_layers = self._upper_layers(view)
        return Reconstruction(
            inputs=pixels,
            certified=found.certified,
            p_values=found.p_values.float(),
            confidence=found.confidence.float(),
            duals=found.duals.float(),
            outcome=outcome,
            message=_describe_result(unexplained, upper_layers == 0.0, found.exact, proven),
            history=runs.history.float(),
            diagnostics=diagnostics
            | {
                "upper_layers": upper_layers,
                "edges_met": [] if found.met is None else found.met.counts.tolist(),
                "doubts": [doubt.value for doubt in found.doubts],
                "error_bounds": found.error_bounds,
                "chosen_by": "the unexplained fraction of the weights that count; no training input was seen",
            },
        )


def _describe_result(unexplained: float, first_layer_only: bool, exact: int, proven: int) -> str:
    """Return how much is explained, the number of candidates where edges meet, and how many of them are proven."""
    whole = "first layer" if first_layer_only else "weights"
    are = "is a point" if exact == 1 else "are points"
    met = f" {exact} of the candidates {are} where the edges of many units meet" if exact else ""
    proof = f"; {proven} of them certified, by an experimental proof." if proven else "." if exact else ""
    unproven = "" if proven else " Nothing here is proven."
    if unexplained <= EXPLAINED:
        return f"The candidates explain all but {unexplained:.2%} of the squared {whole}.{unproven}{met}{proof}"
    residual = f"The candidates leave {unexplained:.2%} of the squared {whole} unexplained"
    if exact:
        return f"{met.strip()}{proof} {residual}."
    return (
        f"{residual}: the training may have stopped far from a stationary point, where initial weights are still "
        "visible, or the search needs more steps."
    )
