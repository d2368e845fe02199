"""Explain the change of the weights by training inputs and their duals (Loo et al. 2023)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Literal, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from exhume.attacks.attack import Attack
from exhume.attacks.weight_difference.problem import WeightChange
from exhume.attacks.weight_difference.search import Search, Stage
from exhume.clues.clues import Clues, clues_of
from exhume.clues.evidence import Evidence, find_evidence
from exhume.clues.first_layer import FirstLayer
from exhume.clues.search_space import SearchSpace
from exhume.clues.subspace import InputSubspace, Rest
from exhume.core.errors import ExhumeError, Refusal
from exhume.core.run_context import RunContext
from exhume.core.settings import settings
from exhume.optimise import Decay, Minimum, Variables
from exhume.optimise.precision import Precision, dtype_of, precision_note
from exhume.records import AttackerView, Outcome, Reconstruction, Weights, count_outputs

Features = Literal["auto", "initial", "final", "midpoint", "both"]
DualUnit = Literal["natural", "averaged"]
Share = Annotated[float, Field(ge=0, le=1)]
Clue = TypeVar("Clue", bound=FirstLayer | InputSubspace)

SHARPNESS = (10.0, 100.0)
"""First and last β for networks whose features moved. Gates that flipped during training are half open in the sum, and
gates of this smoothness are too."""
LINEARISED_SHARPNESS = (10.0, 1000.0)
"""First and last β for linearised networks, whose gates never moved: the error of smoother gates at the end would hide
weak inputs."""
CROWDED = 10
"""First-layer units per training input below which a search begins half way between both ends."""


@settings
class WeightDifference(Attack):
    """Find inputs ``x_j`` and duals ``α_j`` whose gradients add up to the change of the weights.

    Minimises ``‖(θf − θ0) − Σ_j Σ_c α_jc ∇θ f_c(x_j; θ)‖²`` (Loo et al. 2023, Eq. 7 and S4) with Adam, while smooth
    replacements of ReLUs sharpen. Exact for linearised networks; for others the error grows with the movement of their
    features.

    The defaults search inside the affine subspace that the first layer's change reveals
    (:class:`~exhume.clues.search_space.SearchSpace`), which gets further in a hundredth of the published steps.
    :meth:`published` has the settings of the paper.
    """

    candidates: PositiveInt | None = None
    """Number of inputs to look for; None: ``oversampling`` per training input, counted by the rank of the first layer's
    change."""
    oversampling: PositiveFloat = 3.0
    features: Features | tuple[float, ...] = "auto"
    """The weights at which gradients are taken: ``both`` ends with separate duals, or one point.

    ``auto`` is ``initial`` for a linearised network, where that is exact, and ``both`` for any other. ``midpoint``,
    half way between the ends, costs half as much as ``both``. A tuple gives positions on the straight line between the
    ends, such as ``(0.5, 1.0)`` for the midpoint and the end.
    """
    midway: Share | None = None
    """Fraction of the steps, the first ones, that take gradients half way between the points, if ``features`` has
    several. None: half of them in a crowded network, with fewer than ten units per training input, and none elsewhere.
    There, more inputs take shape half way (at half the cost) before the separate points explain the rest."""
    balance: Share = 0.5
    """How far strong and weak directions of the first layer's change count alike, from 0 (as they are) to 1.

    Used inside the subspace only, where directions are known
    (:func:`~exhume.gradient_sums.coordinates.balanced_metric`).
    """
    within_span: bool | None = None
    """Whether to search only in the span that the first layer's change reveals; None: wherever it reveals one."""
    steps: PositiveInt = 1000
    learning_rate: PositiveFloat = 0.05
    """Step size of a pixel (in root mean square, inside a subspace), and of a dual in its unit."""
    decay: Decay = "cosine"
    dual_unit: DualUnit = "natural"
    """Unit of duals: ``natural`` is the size they should have given the change and the gradients, and ``averaged`` is
    1/(candidates·outputs), as in the published code."""
    init_std: NonNegativeFloat = 0.2
    """Standard deviation of the first guesses around zero, in pixel units."""
    sharpness: tuple[PositiveFloat, PositiveFloat] | None = None
    """The first and last β of softplus(βz)/β in place of ReLU; None: 10 to 100, for linearised networks 10 to 1000."""
    box_weight: NonNegativeFloat = 0.1
    """Weight of the penalty for leaving the pixel range: the sum of squared violations over the size of an input."""
    precision: Precision = "float32"
    """``tf32`` lets a GPU round the factors of matrix products, which is faster and less exact. ``mixed`` does so until
    the last fifth of the steps, which decides how exact the result is; on a CPU with bfloat16 products it rounds to
    bfloat16, and on any other CPU it is ``float32``, with a note among the diagnostics."""
    tolerance: NonNegativeFloat = 0.1
    """Unexplained fraction of the squared change up to which a search counts as converged."""
    patience: NonNegativeInt = 0
    """Number of steps without a decrease of the objective by a thousandth after which a search stops; 0: never stop."""
    at_once: PositiveInt | None = None
    """Number of candidates computed at a time, so that memory does not grow with their number; None: all.

    The result is the same; a step costs about half as much again.
    """
    splits: NonNegativeInt = 0
    """Number of times that every candidate is split in two, along the direction in which that lowers the objective most
    (:mod:`exhume.optimise.splitting`), evenly spread over the steps. The search starts with ``candidates`` over
    ``2^splits``, and ends with all of them."""

    @classmethod
    def published(cls) -> "WeightDifference":
        """Return the settings of Loo et al. (2023): all pixels free, 80 000 steps, softplus from 10 to 200."""
        return cls(
            oversampling=2.0,
            midway=0.0,
            balance=0.0,
            within_span=False,
            steps=80_000,
            learning_rate=0.02,
            decay="none",
            dual_unit="averaged",
            sharpness=(10.0, 200.0),
        )

    def check(self, view: AttackerView) -> None:
        """Refuse views without a sum of gradients to explain, or without a clue that the settings rely on."""
        evidence = self._evidence(view)
        if not evidence.trained():
            raise Refusal(
                "The initial and the final weights are the same: nothing was trained."
                if evidence.kind == "weight change"
                else f"The {evidence.kind} is zero: there is nothing to explain."
            )
        missing = sorted({name for name, _ in view.model.named_parameters()} - evidence.measured.keys())
        if missing:
            raise Refusal(
                f"WeightDifference explains every parameter, and the {evidence.kind} lacks {missing[0]}"
                + (f" and {len(missing) - 1} more." if len(missing) > 1 else ".")
            )
        if self.candidates is None or self.within_span:
            self._read(Clues.require_first_layer, view)  # the quick half; the rank is measured when the attack runs

    def recover(self, view: AttackerView, context: RunContext) -> Reconstruction:
        """Minimise from random guesses."""
        (found,) = self.recover_together([view], [context.generator], context)
        return found

    def recover_together(
        self, views: Sequence[AttackerView], generators: Sequence[torch.Generator], context: RunContext
    ) -> list[Reconstruction]:
        """Minimise many times in one program: one view from many starts, or many dense networks of one shape.

        Every run ends as it would alone, up to rounding.
        """
        plans = {key: self._plan(view) for key, view in {id(view): view for view in views}.items()}
        tasks = [plans[id(view)] for view in views]
        counts = sorted({task.training_size for task in tasks})
        if len(counts) > 1:
            raise ExhumeError(
                "Only networks of one training set size fit side by side; these have "
                f"{' and '.join(map(str, counts))} training inputs."
            )
        starts = [
            self._draw_guesses(view, task, generator)
            for view, task, generator in zip(views, tasks, generators, strict=True)
        ]
        ends = self._search(tasks[0]).run([task.problems for task in tasks], starts, context)
        return [self._result(view, task, *end) for view, task, end in zip(views, tasks, ends, strict=True)]

    def explain_rest(self, view: AttackerView, rest: Rest, context: RunContext) -> Float[Tensor, "candidate value"]:
        """Return inputs that explain what known effects leave of the first layer's change, in a dense stack."""
        task = self._plan(view, rest)
        search = replace(self._search(task), splits=0)  # the curvature is that of all of the change
        (end,) = search.run([task.problems], [self._draw_guesses(view, task, context.generator)], context)
        return end.problem.inputs(end.end.variables[0])

    def _search(self, task: "_Plan") -> Search:
        return Search(
            stages=task.stages,
            learning_rate=self.learning_rate,
            decay=self.decay,
            tolerance=self.tolerance,
            patience=self.patience,
            precision=self.precision,
            natural_unit=self.dual_unit == "natural",
            splits=self.splits,
            about=repr(self),
        )

    def _plan(self, view: AttackerView, rest: Rest | None = None) -> "_Plan":
        """Pose one problem per stage of the search; of what known effects leave, where ``rest`` is given."""
        if rest is None:
            candidates, subspace = self._choose_space(view)
        else:
            candidates, subspace = max(1, round(self.oversampling * rest.subspace.rank)), rest.subspace
        evidence = self._evidence(view) if subspace is None else subspace.layer.evidence
        stages = self._stages(view, evidence, subspace)
        dtype = dtype_of(self.precision)
        space = SearchSpace(view.input_size) if subspace is None else SearchSpace.spanned_by(subspace, dtype)
        problems = [
            WeightChange.of(
                view,
                _interpolate_weights(evidence, stage.positions),
                space,
                box_weight=self.box_weight,
                # The features of a layer in the middle may be small, and so are the values of the units above them.
                sharpness=(stage.sharpness[0] / space.unit, stage.sharpness[1] / space.unit),
                dual_unit=1.0 / (candidates * count_outputs(view.model, view.input_shape)),
                balance=self.balance,
                evidence=evidence,
                kept=None if subspace is None else subspace.layer.decay_factor,
                known=None if rest is None else rest.known,
                dtype=dtype,
            )
            for stage in stages
        ]
        posed = [replace(problem.compacted(candidates), at_once=self.at_once) for problem in problems]
        return _Plan(stages, posed, candidates, subspace)

    @staticmethod
    def _evidence(view: AttackerView) -> Evidence:
        """Return the sum of gradients to explain: that of the subspace where one shows, so that all clues agree."""
        subspace = clues_of(view).subspace if len(find_evidence(view)) > 1 else None
        return find_evidence(view)[0] if subspace is None else subspace.layer.evidence

    def _stages(self, view: AttackerView, evidence: Evidence, subspace: InputSubspace | None) -> tuple[Stage, ...]:
        """Return the stages of the search, in order."""
        named = {"initial": (0.0,), "final": (1.0,), "midpoint": (0.5,), "both": (0.0, 1.0)}
        named["auto"] = named["initial" if view.linearised else "both"]
        positions = named[self.features] if isinstance(self.features, str) else self.features
        positions = positions[-1:] if evidence.is_local else positions  # all points are the same
        sharpness = self.sharpness or (LINEARISED_SHARPNESS if view.linearised else SHARPNESS)
        is_crowded = subspace is not None and len(subspace.layer.after) < CROWDED * subspace.rank
        midway = self.midway if self.midway is not None else 0.5 * is_crowded
        first = min(round(midway * self.steps), self.steps - 1) if len(positions) > 1 else 0
        if first == 0:
            return (Stage(positions, self.steps, sharpness),)
        centre = sum(positions) / len(positions)
        return Stage((centre,), first, sharpness), Stage(positions, self.steps - first, (sharpness[1], sharpness[1]))

    def _choose_space(self, view: AttackerView) -> tuple[int, InputSubspace | None]:
        """Return the number of candidates, and the subspace to search (None: all inputs)."""
        subspace = None
        if self.candidates is None or self.within_span is not False:
            subspace = self._read(Clues.require_subspace, view)
        candidates = self.candidates
        if candidates is None:
            assert subspace is not None
            candidates = max(1, round(self.oversampling * subspace.rank))
        return candidates, None if self.within_span is False or not _is_about_inputs(subspace) else subspace

    def _read(self, read: Callable[[Clues], Clue], view: AttackerView) -> Clue | None:
        """Return a clue about the first layer's change, or None; refuse where the settings rely on it."""
        clue, reason = None, None
        try:
            clue = read(clues_of(view))
        except Refusal as refusal:
            reason = refusal
        if self.within_span and not _is_about_inputs(clue):
            raise Refusal("The weights do not show the span of the inputs; search with within_span=None.") from reason
        if self.candidates is None and clue is None:
            raise Refusal(
                "The size of the training set cannot be read off these weights; set candidates to about "
                f"{self.oversampling:g} times what it may be."
            ) from reason
        return clue

    def _draw_guesses(self, view: AttackerView, task: "_Plan", generator: torch.Generator) -> Variables:
        # Drawn on the CPU, so that a seed means the same on every device.
        problem, outputs = task.problems[0], count_outputs(view.model, view.input_shape)
        inputs = self.init_std * problem.space.unit * torch.randn(task.candidates, view.input_size, generator=generator)
        duals = torch.rand(problem.points, task.candidates, outputs, generator=generator) - 0.5
        like = problem.target[0]
        return problem.space.project(inputs.to(like)).contiguous(), duals.to(like)

    def _result(self, view: AttackerView, task: "_Plan", problem: WeightChange, end: Minimum) -> Reconstruction:
        free, raw_duals = end.variables
        return Reconstruction(
            inputs=view.to_pixels(problem.inputs(free).float()),
            certified=torch.zeros(len(free), dtype=torch.bool),
            confidence=problem.confidence(free, raw_duals).float(),
            duals=problem.duals(raw_duals).transpose(0, 1).flatten(1).float(),
            outcome=end.outcome,
            message=_message(end.outcome, end.value / problem.size),
            history=(end.history / problem.size).float(),
            diagnostics={
                "steps": end.steps,
                "searched_dimensions": problem.space.dimension,
                **({} if task.subspace is None else task.subspace.describe_size()),
                **precision_note(self.precision, view.device),
            },
        )


class _Plan(NamedTuple):
    """The search that a view asks for."""

    stages: tuple[Stage, ...]
    problems: list[WeightChange]
    """One per stage."""
    candidates: int
    subspace: InputSubspace | None
    """The subspace that is searched, if the first layer shows one."""

    @property
    def training_size(self) -> int:
        """The training set size that the weights show, or else the number of candidates."""
        return self.candidates if self.subspace is None else self.subspace.rank


def _interpolate_weights(evidence: Evidence, positions: Sequence[float]) -> list[Weights]:
    """Return the weights at positions on the straight line from the first (0) to the last step (1) of a sum."""

    def between(before: Tensor, after: Tensor, position: float) -> Tensor:
        if not after.is_floating_point():
            return after
        wider = torch.promote_types(before.dtype, after.dtype)
        return torch.lerp(before.to(wider), after.to(wider), position)

    return [
        {name: between(evidence.before[name], after, position) for name, after in evidence.after.items()}
        for position in positions
    ]


def _is_about_inputs(clue: InputSubspace | FirstLayer | None) -> bool:
    """Return whether a clue is about raw inputs; the subspace of frozen features says nothing about pixels."""
    layer = clue.layer if isinstance(clue, InputSubspace) else clue
    return layer is not None and layer.reads_input


def _message(outcome: Outcome, unexplained: float) -> str:
    share = f"{unexplained:.2%} of the squared weight change"
    return {
        Outcome.CONVERGED: f"All but {share} is explained.",
        Outcome.STALLED: f"The objective stopped falling with {share} unexplained; try more steps or candidates.",
        Outcome.STEPS_EXHAUSTED: f"The objective was still falling with {share} unexplained; allow more steps.",
        Outcome.DIVERGED: "The search diverged; lower the learning rate. The result is the last finite state.",
    }[outcome]
