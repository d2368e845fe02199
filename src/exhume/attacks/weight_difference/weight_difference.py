"""Explain the change of the weights by training inputs and their duals (Loo et al. 2023)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeVar, get_args

import torch

from exhume.attacks.attack import Attack
from exhume.attacks.weight_difference.problem import WeightChange
from exhume.attacks.weight_difference.search import Search, Stage
from exhume.clues.clues import Clues, clues_of
from exhume.clues.first_layer import FirstLayer
from exhume.clues.search_space import SearchSpace
from exhume.clues.subspace import InputSubspace
from exhume.core.devices import has_fast_bfloat16
from exhume.core.errors import ExhumeError, Refusal
from exhume.core.run_context import RunContext
from exhume.models.architecture import choose
from exhume.optimise import Decay, Minimum, Variables
from exhume.records import AttackerView, Outcome, Reconstruction, Weights, count_outputs

Features = Literal["auto", "initial", "final", "midpoint", "both"]
Precision = Literal["float32", "tf32", "mixed", "float64"]
DualUnit = Literal["natural", "averaged"]
Seen = TypeVar("Seen", bound=FirstLayer | InputSubspace)

SHARPNESS = (10.0, 100.0)
"""Of a network whose features moved: gates that flipped during training are half open, and so are gates this soft."""
LINEARISED_SHARPNESS = (10.0, 1000.0)
"""Of a linearised network, whose gates never moved: what the last softness leaves unexplained hides weak inputs."""
CROWDED = 10
"""Units of the first layer a training input, below which a search begins half way between both ends."""
COARSE_SHARE = {"tf32": 1.0, "mixed": 0.8}
"""The share of steps, the first ones, in which a GPU may round the factors of matrix products."""


@dataclass(frozen=True, kw_only=True)
class WeightDifference(Attack):
    """Find inputs ``x_j`` and duals ``α_j`` whose gradients add up to the change of the weights.

    Minimises ``‖(θf − θ0) − Σ_j Σ_c α_jc ∇θ f_c(x_j; θ)‖²`` (Loo et al. 2023, Eq. 7 and S4) with Adam, while smooth
    stand-ins for ReLUs sharpen. Exact for linearised networks; for others as good as their features stand still.

    The defaults search inside the affine subspace that the first layer's change gives away
    (:class:`~exhume.clues.search_space.SearchSpace`), which takes a hundredth of the published steps to get further.
    :meth:`published` has the settings of the paper.
    """

    candidates: int | None = None
    """How many inputs to look for; None: ``oversampling`` for every training input, counted by the rank of the first
    layer's change."""
    oversampling: float = 3.0
    features: Features | tuple[float, ...] = "auto"
    """At which weights gradients are taken: at ``both`` ends with separate duals, or at one point.

    ``auto`` is ``initial`` for a linearised network, where that is exact, and ``both`` for any other. ``midpoint``,
    half way between the ends, costs half as much as ``both``. Or the places of any points on the straight line between
    the ends, such as ``(0.5, 1.0)`` for the midpoint and the end.
    """
    midway: float | None = None
    """The share of steps, the first ones, that take gradients half way between the points, where ``features`` has
    several. None: half of them where the network is crowded, with fewer than ten units a training input, since more
    inputs take shape there (and at half the cost) before the points tell what is left; none elsewhere."""
    balance: float = 0.5
    """How far strong and weak directions of the first layer's change count alike, from 0 (as they are) to 1.

    Only inside the subspace, where directions are known (:func:`~exhume.gradient_sums.coordinates.balanced_metric`).
    """
    within_subspace: bool | None = None
    """Whether to search only where the first layer's change allows; None: whenever it tells."""
    steps: int = 1000
    learning_rate: float = 0.05
    """How far a pixel moves in a step (in root mean square, inside a subspace), and a dual in its unit."""
    decay: Decay = "cosine"
    dual_unit: DualUnit = "natural"
    """What duals are counted in: ``natural`` is the size they should have given the change and the gradients, and
    ``averaged`` one over candidates·outputs, as in the published code."""
    init_std: float = 0.2
    """The spread of the first guesses around zero, in pixel units."""
    sharpness: tuple[float, float] | None = None
    """The first and last β of softplus(βz)/β in place of ReLU; None: 10 to 100, for linearised networks 10 to 1000."""
    box_weight: float = 0.1
    """Of the penalty for leaving the pixel range, the sum of squared violations over the size of an input."""
    precision: Precision = "float32"
    """``tf32`` lets a GPU round the factors of matrix products, which is faster and less exact. ``mixed`` does so until
    the last fifth of the steps, which decides how exact the result is; on a CPU that multiplies bfloat16 it rounds to
    that, and elsewhere on a CPU it is ``float32``, with a note among the diagnostics."""
    tolerance: float = 0.1
    """Explaining all but this share of the squared change counts as converged."""
    patience: int = 0
    """Stop when so many steps did not lower the objective by a thousandth; 0: never."""
    at_once: int | None = None
    """How many candidates are worked on at a time, so that memory does not grow with their number; None: all.

    The result is the same; a step costs about half as much again.
    """

    def __post_init__(self) -> None:
        if isinstance(self.features, str):
            choose("features", self.features, get_args(Features))
        if self.midway is not None and not 0 <= self.midway <= 1:
            raise ExhumeError(f"WeightDifference needs a share of steps between 0 and 1 for midway, not {self.midway}.")
        choose("precision", self.precision, get_args(Precision))
        choose("decay", self.decay, get_args(Decay))
        choose("dual_unit", self.dual_unit, get_args(DualUnit))
        at_least = {
            "candidates": 1,
            "at_once": 1,
            "steps": 1,
            "learning_rate": 0,
            "init_std": 0,
            "box_weight": 0,
            "balance": 0,
            "tolerance": 0,
            "patience": 0,
        }
        for name, least in at_least.items():
            value = getattr(self, name)
            if value is not None and not least <= value < math.inf:
                raise ExhumeError(f"WeightDifference needs {name} of at least {least}, not {value}.")
        if not 0 < self.oversampling < math.inf:
            raise ExhumeError(f"WeightDifference needs a positive oversampling, not {self.oversampling}.")
        if self.balance > 1:
            raise ExhumeError(f"WeightDifference needs a balance of at most 1, not {self.balance}.")
        if self.sharpness is not None and not _is_pair(self.sharpness):
            raise ExhumeError(f"WeightDifference needs two positive values of sharpness, not {self.sharpness}.")

    @classmethod
    def published(cls) -> "WeightDifference":
        """Return the settings of Loo et al. (2023): all pixels free, 80 000 steps, softplus from 10 to 200."""
        return cls(
            oversampling=2.0,
            midway=0.0,
            balance=0.0,
            within_subspace=False,
            steps=80_000,
            learning_rate=0.02,
            decay="none",
            dual_unit="averaged",
            sharpness=(10.0, 200.0),
        )

    def check(self, view: AttackerView) -> None:
        """Refuse views without a start, without a change, or too silent about their training size or subspace."""
        if view.initial is None:
            raise Refusal("WeightDifference compares two ends of a training, and the view has no initial weights.")
        if all(torch.equal(view.initial[name], view.final[name]) for name in view.final):
            raise Refusal("The initial and the final weights are the same: nothing was trained.")
        if self.candidates is None or self.within_subspace:
            self._look(Clues.require_first_layer, view)  # the quick half; the rank is measured when the attack runs

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
        posed = {number: self._pose(view) for number, view in {id(view): view for view in views}.items()}
        tasks = [posed[id(view)] for view in views]
        counts = sorted({task.training_size for task in tasks})
        if len(counts) > 1:
            raise ExhumeError(
                "Only networks with as many training inputs each fit side by side; these tell of "
                f"{' and '.join(map(str, counts))}."
            )
        starts = [
            self._guesses(view, task, generator) for view, task, generator in zip(views, tasks, generators, strict=True)
        ]
        search = Search(
            stages=tasks[0].stages,
            learning_rate=self.learning_rate,
            decay=self.decay,
            tolerance=self.tolerance,
            patience=self.patience,
            coarse_share=COARSE_SHARE.get(self.precision, 0.0),
            rounds_on_cpu=self.precision == "mixed",
            natural_unit=self.dual_unit == "natural",
            about=repr(self),
        )
        ends = search.run([task.problems for task in tasks], starts, context)
        return [self._result(view, task, *end) for view, task, end in zip(views, tasks, ends, strict=True)]

    def _stages(self, view: AttackerView, subspace: InputSubspace | None) -> tuple[Stage, ...]:
        """Return what a search does, one after the other."""
        named = {"initial": (0.0,), "final": (1.0,), "midpoint": (0.5,), "both": (0.0, 1.0)}
        named["auto"] = named["initial" if view.linearised else "both"]
        places = named[self.features] if isinstance(self.features, str) else self.features
        sharpness = self.sharpness or (LINEARISED_SHARPNESS if view.linearised else SHARPNESS)
        crowded = subspace is not None and len(subspace.layer.after) < CROWDED * subspace.rank
        midway = self.midway if self.midway is not None else 0.5 * crowded
        first = min(round(midway * self.steps), self.steps - 1) if len(places) > 1 else 0
        if first == 0:
            return (Stage(places, self.steps, sharpness),)
        centre = sum(places) / len(places)
        return Stage((centre,), first, sharpness), Stage(places, self.steps - first, (sharpness[1], sharpness[1]))

    def _pose(self, view: AttackerView) -> "_Posed":
        candidates, subspace = self._plan(view)
        stages = self._stages(view, subspace)
        dtype = torch.float64 if self.precision == "float64" else torch.float32
        space = SearchSpace(view.input_size) if subspace is None else SearchSpace.spanned_by(subspace, dtype)
        problems = [
            WeightChange.of(
                view,
                _points(view, stage.places),
                space,
                box_weight=self.box_weight,
                sharpness=stage.sharpness,
                dual_unit=1.0 / (candidates * count_outputs(view.model, view.input_shape)),
                balance=self.balance,
                kept=1.0 if subspace is None else subspace.layer.decay_factor,
                dtype=dtype,
            )
            for stage in stages
        ]
        posed = [replace(problem.compacted(candidates), at_once=self.at_once) for problem in problems]
        return _Posed(stages, posed, candidates, subspace)

    def _plan(self, view: AttackerView) -> tuple[int, InputSubspace | None]:
        """Return how many candidates to look for, and the subspace to look in (None: among all inputs)."""
        subspace = None
        if self.candidates is None or self.within_subspace is not False:
            subspace = self._look(Clues.require_subspace, view)
        candidates = self.candidates
        if candidates is None:
            assert subspace is not None
            candidates = max(1, round(self.oversampling * subspace.rank))
        return candidates, None if self.within_subspace is False or not _holds_inputs(subspace) else subspace

    def _look(self, at: Callable[[Clues], Seen], view: AttackerView) -> Seen | None:
        """Look at the first layer's change; refuse where it shows nothing and the settings rely on it."""
        seen, reason = None, None
        try:
            seen = at(clues_of(view))
        except Refusal as refusal:
            reason = refusal
        if self.within_subspace and not _holds_inputs(seen):
            raise Refusal(
                "The weights do not show the subspace of the inputs; search with within_subspace=None."
            ) from reason
        if self.candidates is None and seen is None:
            raise Refusal(
                "The size of the training set cannot be read off these weights; set candidates to about "
                f"{self.oversampling:g} times what it may be."
            ) from reason
        return seen

    def _guesses(self, view: AttackerView, task: "_Posed", generator: torch.Generator) -> Variables:
        # Drawn on the CPU, so that a seed means the same on every device.
        problem, outputs = task.problems[0], count_outputs(view.model, view.input_shape)
        inputs = self.init_std * torch.randn(task.candidates, view.input_size, generator=generator)
        duals = torch.rand(problem.points, task.candidates, outputs, generator=generator) - 0.5
        like = problem.target[0]
        return problem.space.project(inputs.to(like)).contiguous(), duals.to(like)

    def _result(self, view: AttackerView, task: "_Posed", problem: WeightChange, end: Minimum) -> Reconstruction:
        free, raw_duals = end.variables
        return Reconstruction(
            inputs=view.to_pixels(problem.inputs(free).float()),
            certified=torch.zeros(len(free), dtype=torch.bool),
            confidence=problem.confidence(free, raw_duals).float(),
            duals=problem.duals(raw_duals).transpose(0, 1).flatten(1).float(),
            outcome=end.outcome,
            message=_sentence(end.outcome, end.value / problem.size),
            history=(end.history / problem.size).float(),
            diagnostics={
                "steps": end.steps,
                "searched_dimensions": problem.space.dimension,
                **({} if task.subspace is None else {"training_size_estimate": task.subspace.rank}),
                **self._precision_note(view.device),
            },
        )

    def _precision_note(self, device: torch.device) -> dict[str, str]:
        """Return a note where ``mixed`` precision was asked for and the CPU has no bfloat16 products that work."""
        if self.precision != "mixed" or device.type != "cpu" or has_fast_bfloat16():
            return {}
        return {"precision": "float32 in every step: this CPU has no bfloat16 products that work"}


class _Posed(NamedTuple):
    """What a view asks for."""

    stages: tuple[Stage, ...]
    problems: list[WeightChange]
    """One a stage."""
    candidates: int
    subspace: InputSubspace | None
    """Where the first layer showed one."""

    @property
    def training_size(self) -> int:
        """How many training inputs the weights tell of, or else how many candidates are looked for."""
        return self.candidates if self.subspace is None else self.subspace.rank


def _points(view: AttackerView, places: Sequence[float]) -> list[Weights]:
    """Return the weights at places on the straight line from the initial to the final ones."""
    initial = view.initial
    assert initial is not None
    return [
        {
            name: torch.lerp(initial[name], end, place) if end.is_floating_point() else end
            for name, end in view.final.items()
        }
        for place in places
    ]


def _is_pair(sharpness: object) -> bool:
    return (
        isinstance(sharpness, tuple | list)
        and len(sharpness) == 2
        and all(isinstance(beta, int | float) and 0 < beta < math.inf for beta in sharpness)
    )


def _holds_inputs(seen: InputSubspace | FirstLayer | None) -> bool:
    """Tell whether the subspace is one of raw inputs; that of frozen features says nothing about pixels."""
    layer = seen.layer if isinstance(seen, InputSubspace) else seen
    return layer is not None and layer.reads_input


def _sentence(outcome: Outcome, unexplained: float) -> str:
    share = f"{unexplained:.2%} of the squared weight change"
    return {
        Outcome.CONVERGED: f"All but {share} is explained.",
        Outcome.STALLED: f"The objective stopped falling with {share} unexplained; try more steps or candidates.",
        Outcome.STEPS_EXHAUSTED: f"The objective was still falling with {share} unexplained; allow more steps.",
        Outcome.DIVERGED: "The objective left all bounds; lower the learning rate. Given is the last finite state.",
    }[outcome]
