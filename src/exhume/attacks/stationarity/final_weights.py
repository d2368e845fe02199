"""What the attacks that need only the final weights share: plan, search for settings, pooled runs, result."""

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from exhume.attacks.attack import Attack
from exhume.attacks.stationarity.edges import Edges, Meetings, meetings
from exhume.attacks.stationarity.multipliers import Multipliers
from exhume.attacks.stationarity.pooling import merge_near_duplicates
from exhume.attacks.stationarity.problem import KktProblem
from exhume.attacks.stationarity.runs import Knobs, Range, Runs, first_guesses, follow
from exhume.clues.clues import clues_of
from exhume.clues.search_space import SearchSpace
from exhume.clues.subspace import InputSubspace
from exhume.core.checkpoint import Checkpoint
from exhume.core.correlation import agreement_between_runs
from exhume.core.errors import ExhumeError, Refusal
from exhume.core.run_context import RunContext
from exhume.models.architecture import choose
from exhume.records import AttackerView, Outcome, Reconstruction, count_outputs

Precision = Literal["float32", "tf32", "float64"]
EXPLAINED = 0.1
"""Leaving no more than this share of the squared weights unexplained counts as converged."""
OUTSIDE = 0.05
"""How far outside the range of inputs a point may lie that edges fix, relative to its size."""
KNOBS = ("input_rate", "multiplier_rate", "spread", "floor", "sharpness")


@dataclass(frozen=True, kw_only=True)
class FinalWeights(Attack):
    """Explain the final weights themselves as a sum of gradients at training inputs.

    Settings that decide between success and failure are not asked for but searched: ``trials`` sets of them are drawn
    from their ranges and halved by what each leaves unexplained, which is all an attacker can measure. The winners are
    run anew from ``restarts`` independent starts; what several of those agree on is likely real.
    """

    candidates: int | None = None
    """How many inputs to look for; None: ``oversampling`` for every training input, counted by the rank of the first
    layer where that shows."""
    oversampling: float = 1.0
    within_span: bool | None = None
    """Whether to search only in the span of the first layer's weights; None: whenever it shows."""
    trials: int = 8
    """Sets of settings to draw; 1: none is compared, the middle of every range is taken."""
    trial_steps: int = 200
    """Steps of the first round of trials; every later round has twice as many for half as many trials."""
    winners: int = 2
    """Sets of settings that survive the trials."""
    restarts: int = 6
    """Runs from new starts under the winners' settings, in turn."""
    steps: int = 1000
    """Of each of these runs."""
    at_once: int = 64
    """Runs that share a stacked program; fewer take less memory."""
    input_rate: Range = (0.01, 0.1)
    """How far an input value moves in a step; the search draws between the two ends, as for all ranges."""
    multiplier_rate: Range = (0.01, 0.1)
    spread: Range = (0.02, 0.2)
    """Of first guesses around the centre, in pixel units."""
    floor: Range = (0.01, 0.5)
    """Under multipliers, in units of their natural size."""
    sharpness: Range = (30.0, 1000.0)
    """Of the gates that backpropagation sees: ``sigmoid(a·z)`` for the derivative of a ReLU."""
    balance: float = 0.0
    """How far strong and weak directions of the first layer count alike, from 0 (as they are) to 1."""
    upper_layers: float | None = None
    """How much squares of what is left above the first layer count; None: not at all where those layers still show
    their random start and the first does not, else in full."""
    box_weight: float = 10.0
    """Of values outside the pixel range: what all of them together cost, relative to explaining nothing."""
    floor_weight: float = 5.0
    """Of multipliers below the floor, likewise."""
    edges: bool = True
    """Whether to look where the edges of many first-layer units meet around the candidates: where they do, a training
    input lies exactly."""
    rescale: bool | None = None
    """Whether to stretch every candidate over the pixel range; None: only where the first layer does not settle the
    scale of inputs, since a larger input and a smaller multiplier then explain the same."""
    similar: float = 0.95
    """Candidates of different runs that correlate at least so much are one, and are averaged."""
    precision: Precision = "float32"
    """``tf32`` lets a GPU round the factors of matrix products, which is several times faster and less exact."""

    def __post_init__(self) -> None:
        choose("precision", self.precision, get_args(Precision))
        least = {"candidates": 1, "trials": 1, "trial_steps": 1, "winners": 1, "restarts": 1, "steps": 1, "at_once": 1}
        for name, value in least.items():
            if (set_to := getattr(self, name)) is not None and set_to < value:
                raise ExhumeError(f"{type(self).__name__} needs {name} of at least {value}, not {set_to}.")
        for name in KNOBS:
            low, high = getattr(self, name)
            if not 0 < low <= high < math.inf:
                raise ExhumeError(f"{type(self).__name__} needs two positive numbers for {name}, not {low, high}.")
        if self.upper_layers is not None and not 0 <= self.upper_layers < math.inf:
            raise ExhumeError(f"{type(self).__name__} needs upper_layers of at least 0, not {self.upper_layers}.")

    @abstractmethod
    def multipliers(self, view: AttackerView, candidates: int, span: InputSubspace | None) -> Multipliers:
        """Return how candidates may weigh in."""

    @property
    @abstractmethod
    def natural_unit(self) -> bool:
        """Whether multipliers are counted in the size they should have; otherwise they bring their own."""

    def check(self, view: AttackerView) -> None:
        """Refuse views that show neither how many inputs there were nor have been told."""
        if view.linearised:
            raise Refusal(f"{type(self).__name__} is about networks as they are, and this view is linearised.")
        if all(not bool(weight.any()) for weight in view.final.values()):
            raise Refusal("All final weights are zero: there is nothing to explain.")
        if self.within_span or self.candidates is None:
            self._span(view)

    def recover(self, view: AttackerView, context: RunContext) -> Reconstruction:
        """Search settings, run the winners from new starts, and pool what they find."""
        span = self._span(view)
        candidates = self.candidates
        if candidates is None:
            assert span is not None
            candidates = max(2, round(self.oversampling * span.rank))
        problem = self._problem(view, candidates, span, context.generator)
        outputs = count_outputs(view.model, view.input_shape)
        stage = _Stages(self, problem, candidates, outputs, context)
        knobs, trials = stage.halved()
        runs = stage.pooled(knobs)
        stage.clear()
        return self._result(view, problem, span, knobs, trials, runs, context.generator)

    def _span(self, view: AttackerView) -> InputSubspace | None:
        span = None if self.within_span is False and self.candidates is not None else clues_of(view).span
        if span is None and self.within_span:
            raise Refusal("The first layer does not show the span of the inputs; search with within_span=None.")
        if span is None and self.candidates is None:
            raise Refusal(
                "The size of the training set cannot be read off these weights; set candidates to about twice what it "
                "may be."
            )
        return span

    def _problem(
        self, view: AttackerView, candidates: int, span: InputSubspace | None, generator: torch.Generator
    ) -> KktProblem:
        dtype = torch.float64 if self.precision == "float64" else torch.float32
        inside = span is not None and self.within_span is not False and span.layer.reads_input
        space = SearchSpace.spanned_by(span, dtype) if inside and span is not None else SearchSpace(view.input_size)
        multipliers = self.multipliers(view, candidates, span)
        problem = KktProblem.of(
            view, space, multipliers, balance=self.balance, upper_layers=self._upper_layers(view), dtype=dtype
        )
        if self.natural_unit:
            probes = torch.randn(16, view.input_size, generator=generator).to(problem.target[0])
            problem = problem.with_natural_unit(space.project(self.spread[1] * probes), candidates)
        a_candidate = problem.size / candidates
        return replace(
            problem,
            box_weight=self.box_weight * a_candidate / view.input_size,
            floor_weight=self.floor_weight * a_candidate,
        )

    def _upper_layers(self, view: AttackerView) -> float:
        if self.upper_layers is not None:
            return self.upper_layers
        return 0.0 if clues_of(view).upper_layers_look_random else 1.0

    def _result(
        self,
        view: AttackerView,
        problem: KktProblem,
        span: InputSubspace | None,
        knobs: Knobs,
        trials: list[dict[str, Any]],
        runs: Runs,
        generator: torch.Generator,
    ) -> Reconstruction:
        order = runs.residuals.argsort()
        best = float(runs.residuals[order[0]])
        # Runs that explain much less than the best got stuck; what they say would only dilute.
        kept = order[runs.residuals[order] <= 2 * best + 1e-9]
        free = runs.free[kept.to(runs.free.device)]
        inputs = torch.stack([problem.inputs(one) for one in free])
        run = torch.arange(len(inputs), device=inputs.device).repeat_interleave(inputs.shape[1])
        agreed = agreement_between_runs(inputs.flatten(0, 1), run)
        means, leaders = merge_near_duplicates(inputs.flatten(0, 1), agreed, self.similar)
        confidence = agreed[leaders]
        duals = torch.stack([problem.duals(runs.free[run], runs.raw[run]) for run in kept.tolist()]).flatten(0, 1)
        outcome = Outcome.CONVERGED if best <= EXPLAINED else Outcome.STALLED
        pixels, places = self._pixels(view, problem, means), leaders
        met = self._meetings(view, problem, free.flatten(0, 1), generator)
        if met is not None:
            exact = self._pixels(view, problem, problem.inputs(met.points.to(means)), scale_is_open=False)
            pixels, places = torch.cat([exact, pixels]), torch.cat([met.starts, places])
            sure = torch.where(met.determined, 1.0, agreed[met.starts].double()).to(confidence)
            confidence = torch.cat([sure, confidence])
        return Reconstruction(
            inputs=pixels,
            certified=torch.zeros(len(pixels), dtype=torch.bool),
            confidence=confidence.float(),
            duals=duals[places].float(),
            outcome=outcome,
            message=_sentence(outcome, best, self._upper_layers(view) == 0.0, 0 if met is None else len(met.points)),
            history=runs.history.float(),
            diagnostics={
                "residuals": runs.residuals.tolist(),
                "kept_runs": kept.tolist(),
                "trials": trials,
                "settings": [knobs.row(number) for number in range(len(knobs))],
                "searched_dimensions": problem.space.dimension,
                "upper_layers": self._upper_layers(view),
                "edges_met": [] if met is None else met.counts.tolist(),
                "determined_by_edges": 0 if met is None else int(met.determined.sum()),
                "chosen_by": "what each run leaves unexplained of the weights that count; no training input was seen",
                **({} if span is None else {"training_size_estimate": span.rank}),
            },
        )

    def _meetings(
        self, view: AttackerView, problem: KktProblem, free: Tensor, generator: torch.Generator
    ) -> Meetings | None:
        """Look where edges meet around the candidates of all runs, in the range that inputs have."""
        edges = Edges.of(view, problem.space) if self.edges else None
        if edges is None or not bool(free.isfinite().all()):
            return None
        met = meetings(edges, free.double(), generator)
        if problem.box is None:
            return met
        inputs = problem.inputs(met.points.to(free)).double()
        outside = problem.box.violation(inputs)
        return met.take(outside.norm(dim=1) <= OUTSIDE * inputs.norm(dim=1))

    def _pixels(
        self, view: AttackerView, problem: KktProblem, inputs: Tensor, *, scale_is_open: bool | None = None
    ) -> Tensor:
        """Return candidates in pixel units, inside the range that pixels have."""
        pixels = view.to_pixels(inputs.float())
        if view.bounds is None:
            return pixels
        low, high = view.bounds
        if scale_is_open is None:
            scale_is_open = self.rescale if self.rescale is not None else problem.space.constant is None
        if scale_is_open:
            flat = pixels.flatten(1)
            least, most = flat.amin(1, keepdim=True), flat.amax(1, keepdim=True)
            flat = low + (high - low) * (flat - least) / (most - least).clamp(min=1e-12)
            pixels = flat.reshape(pixels.shape)
        return pixels.clamp(low, high)


class _Stages:
    """The rounds of an attack, each resumable: a round that ended is not repeated."""

    def __init__(
        self,
        attack: FinalWeights,
        problem: KktProblem,
        candidates: int,
        outputs: int,
        context: RunContext,
    ) -> None:
        self.attack, self.problem, self.candidates, self.outputs = attack, problem, candidates, outputs
        self.context, self.generator = context, context.generator
        self.parts: list[RunContext] = []
        # The file that was asked for stands for those of the rounds beside it.
        if (whole := context.saved("search", {"attack": repr(attack)}, *problem.target)) is not None:
            whole.load()
            whole.save({}, {})

    def halved(self) -> tuple[Knobs, list[dict[str, Any]]]:
        """Draw settings and keep the better half, round after round, until the winners are left."""
        attack = self.attack
        ranges = {name: getattr(attack, name) for name in KNOBS}
        if attack.trials == 1:
            middle = {name: ((low * high) ** 0.5,) * 2 for name, (low, high) in ranges.items()}
            return Knobs.drawn(middle, 1, self.generator), []
        knobs = Knobs.drawn(ranges, attack.trials, self.generator)
        start = self._start(knobs)
        numbers = torch.arange(attack.trials)
        account: list[dict[str, Any]] = [{"settings": knobs.row(number)} for number in range(attack.trials)]
        steps, rounds = attack.trial_steps, _rounds(attack.trials, attack.winners)
        for round_number in range(1, rounds + 1):
            runs = self._follow(
                start, knobs, steps, f"settings, round {round_number} of {rounds}", f"round{round_number}"
            )
            for number, residual in zip(numbers.tolist(), runs.residuals.tolist(), strict=True):
                account[number] |= {"residual": residual if math.isfinite(residual) else None, "rounds": round_number}
            best = runs.residuals.argsort()[: max(attack.winners, len(knobs) // 2)]
            knobs, numbers = knobs.take(best), numbers[best]
            place = best.to(runs.free.device)
            start = runs.free[place], runs.raw[place]
            steps *= 2
        return knobs, account

    def pooled(self, winners: Knobs) -> Runs:
        """Run the winners' settings from new starts, in turn."""
        knobs = winners.take(torch.arange(self.attack.restarts) % len(winners))
        return self._follow(self._start(knobs), knobs, self.attack.steps, "recover", "pool")

    def clear(self) -> None:
        """Remove what was saved on the way; the result is complete."""
        for part in (*self.parts, self.context):
            part.discard_checkpoint()

    def _start(self, knobs: Knobs) -> tuple[Tensor, Tensor]:
        free, raw = first_guesses(self.problem, self.candidates, self.outputs, knobs, self.generator)
        return free, raw

    def _follow(self, start: tuple[Tensor, Tensor], knobs: Knobs, steps: int, stage: str, name: str) -> Runs:
        chunks = torch.split(torch.arange(len(knobs)), self.attack.at_once)
        parts = [
            follow(
                self.problem,
                (start[0][chunk.to(start[0].device)], start[1][chunk.to(start[0].device)]),
                knobs.take(chunk),
                steps=steps,
                coarse_share=1.0 if self.attack.precision == "tf32" else 0.0,
                progress=self.context.report,
                stage=stage if len(chunks) == 1 else f"{stage}, part {number + 1} of {len(chunks)}",
                checkpoint=self._saved(f"{name}-{number + 1}", start, knobs, steps),
            )
            for number, chunk in enumerate(chunks)
        ]
        return Runs(
            free=torch.cat([part.free for part in parts]),
            raw=torch.cat([part.raw for part in parts]),
            residuals=torch.cat([part.residuals for part in parts]),
            history=parts[0].history,
        )

    def _saved(self, name: str, start: tuple[Tensor, Tensor], knobs: Knobs, steps: int) -> Checkpoint | None:
        self.parts.append(self.context.part(name))
        about = {"attack": repr(self.attack), "steps": steps, "runs": len(knobs)}
        return self.parts[-1].saved("search", about, *start, *self.problem.target)


def _rounds(trials: int, winners: int) -> int:
    """Return after how many halvings no more than the winners are left.

    >>> _rounds(8, 2)
    2
    """
    return max(1, math.ceil(math.log2(trials / winners)))


def _sentence(outcome: Outcome, unexplained: float, first_layer_only: bool, met: int) -> str:
    """Say how much is left of what counts, and how many candidates lie where edges meet."""
    share = f"{unexplained:.2%} of the {'first layer' if first_layer_only else 'weights'}, squared,"
    are = "is a point" if met == 1 else "are points"
    fixed = f" {met} of the candidates {are} where the edges of many units meet." if met else ""
    if outcome is Outcome.CONVERGED:
        return f"All but {share} is explained; nothing here is proven.{fixed}"
    return (
        f"{share} stays unexplained: the training may have stopped far from a stationary point (initial weights that "
        f"nobody forgot count here), or the search needs more steps.{fixed}"
    )
