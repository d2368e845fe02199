"""The bilevel attack: which data, trained on, give these weights?"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from exhume.attacks.attack import Attack
from exhume.attacks.bilevel.starts import Start, start_from
from exhume.clues.known_loss import UserLoss, balanced_labels, encode_targets, resolve_loss, with_stable_repr
from exhume.core.errors import ExhumeError, Refusal
from exhume.core.run_context import RunContext
from exhume.core.settings import settings
from exhume.hypergradients import (
    Flat,
    Implicit,
    Inputs,
    LowerLevel,
    MomentumRule,
    TrainingProblem,
    Unrolled,
    one_step,
)
from exhume.models.structure import dense_stack
from exhume.optimise import Adam, Decay, Minimum, Variables, minimise
from exhume.optimise.box import Box
from exhume.records import AttackerView, Outcome, Reconstruction, count_outputs
from exhume.training.losses import LOSSES, Loss
from exhume.training.settings import LossName
from exhume.training.step_size import sharpness

Lower = Literal["auto", "implicit", "unrolled", "stationary"]
From = Literal["final", "initial"]
Precision = Literal["float32", "float64"]


@settings
class Bilevel(Attack):
    """Find inputs on which training ends with the released weights.

    The upper level moves inputs ``x`` to minimise ``‖θ*(x) − θ‖²``; the lower level trains: ``θ*(x)`` minimises the
    loss with weight decay on ``x`` ("Training Data Reconstruction: Privacy due to Uncertainty?", arXiv 2412.08544).
    Needs the final weights, the loss, the weight decay and the number of training inputs; labels are taken as balanced.

    The result explains the weights, but many other sets of inputs may explain them too: read it together with its
    ``start``, and never as a proof.
    """

    candidates: PositiveInt | None = None
    """Number of training inputs; None: the number of inputs in the start."""
    start: Start | str = "noise"
    """Initial candidates: ``Noise``, ``Images`` or a ``Mixture`` (``starts.py``), or the path of your images."""
    labels: tuple[int, ...] | None = None
    """Class of each candidate; None: classes of equal size, up to one."""
    loss: LossName | UserLoss | None = None
    """A name, or any function of outputs and targets; None: the loss that the view states."""
    weight_decay: Annotated[float, Field(ge=0)] | None = None
    """None: the weight decay that the view states. A training without weight decay never comes to rest; it can only be
    repeated, ``unrolled`` from its initial weights."""
    lower: Lower = "auto"
    """How the lower level trains and is differentiated. ``implicit``: until the gradient vanishes, by the implicit
    function theorem; ``unrolled``: for ``lower_steps`` steps, through each of them; ``stationary``: a single step of
    length 1/w, which makes this the tied :class:`~exhume.attacks.Stationarity`; ``auto``: implicit for an affine
    classifier, whose training is strongly convex, and unrolled for any other network."""
    lower_start: From = "final"
    """Where the lower level begins: at the released weights, which it should not leave, or at the initial weights."""
    lower_steps: PositiveInt = 40
    lower_rate: Annotated[float, Field(ge=0)] | None = None
    """Length of an unrolled step; None: the length that the curvature at the start allows."""
    lower_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    newton_steps: PositiveInt = 12
    """Largest number of Newton steps of an implicit lower level."""
    iterations: PositiveInt = 250
    """Largest number of conjugate gradient iterations per Newton step. Recorded work on a GPU always takes all."""
    steps: PositiveInt = 300
    """Steps of the upper level."""
    learning_rate: PositiveFloat = 0.02
    """Change of an input value per step of the upper level."""
    decay: Decay = "cosine"
    box_weight: Annotated[float, Field(ge=0)] = 1.0
    """Weight of values outside the pixel range, relative to a result that explains nothing."""
    precision: Precision = "float64"
    tolerance: Annotated[float, Field(ge=0)] = 1e-4
    """Squared distance of the trained weights that counts as converged, relative to the squared weights (for a training
    from known initial weights: to the squared change of the weights)."""
    patience: NonNegativeInt = 0
    """Number of steps without a decrease of the objective by a thousandth after which to stop; 0: never stop."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", with_stable_repr(self.loss))
        if self.weight_decay == 0 and not self._repeats_training:
            raise ExhumeError(
                "Bilevel: weight_decay should be greater than 0, not 0; only a lower level that is unrolled from the "
                "initial weights needs none."
            )

    def check(self, view: AttackerView) -> None:
        """Refuse views without the loss, the weight decay or the number of inputs."""
        if view.linearised:
            raise Refusal("Bilevel trains the network itself, and this view is linearised.")
        if self.lower_start == "initial" and view.initial is None:
            raise Refusal("The view has no initial weights, where the lower level begins; set lower_start='final'.")
        self._loss(view)
        self._weight_decay(view)
        self._labels(view)

    def recover(self, view: AttackerView, context: RunContext) -> Reconstruction:
        """Minimise the distance of the trained weights from the released weights."""
        start, labels = start_from(self.start), self._labels(view)
        problem = self.problem(view, labels)
        like = next(problem.model.parameters())
        drawn = start.draw(view, labels, context.generator)
        inputs = view.to_model(drawn.to(like)).flatten(1).contiguous()
        target = problem.flat(view.final)
        origin = target if self.lower_start == "final" else problem.flat(view.initial or {})
        # With weight decay the data explain all of the weights; from known initial weights they explain the change.
        explained = target if self.lower_start == "final" else target - origin
        match = Match(
            problem=problem,
            lower=self.lower_level(view, problem, inputs),
            origin=origin,
            target=target,
            unit=explained.norm().clamp(min=torch.finfo(explained.dtype).tiny),
            box=Box.of(view, like.dtype),
            box_weight=self.box_weight,
        )
        descent = Adam(
            steps=self.steps,
            learning_rates=(self.learning_rate,),
            decay=self.decay,
            tolerance=self.tolerance,
            patience=self.patience,
        )
        end = minimise(
            match.objective,
            (inputs,),
            descent,
            scale=float(len(inputs)),
            progress=context.report,
            stage="search",
            checkpoint=context.saved("search", {"attack": repr(self)}, inputs, match.target),
        )
        return self._result(view, match, inputs, end, start)

    def problem(self, view: AttackerView, labels: Int[Tensor, " candidate"]) -> TrainingProblem:
        """Return the training problem as the attacker assumes it."""
        loss = self._loss(view)
        dtype = torch.float64 if self.precision == "float64" else torch.float32
        return TrainingProblem.of(view, loss, encode_targets(loss, labels, view), self._weight_decay(view), dtype)

    def lower_level(self, view: AttackerView, problem: TrainingProblem, inputs: Inputs) -> LowerLevel:
        """Return the lower level; by default an unrolled step is as long as the curvature at ``inputs`` allows."""
        kind = self.lower
        if kind == "auto":
            stack = dense_stack(view.model)
            kind = "implicit" if stack is not None and len(stack.layers) == 1 else "unrolled"
        if kind == "implicit":
            return Implicit(newton_steps=self.newton_steps, iterations=self.iterations)
        if kind == "stationary":
            return one_step(problem.weight_decay)
        rate = self.lower_rate
        if rate is None:
            loss = problem.loss if isinstance(problem.loss, Loss) else LOSSES["mse"]
            shaped = inputs.reshape(len(inputs), *view.input_shape)
            rate = 0.5 / (sharpness(problem.model, shaped, loss) + problem.weight_decay)
        return Unrolled(steps=self.lower_steps, rate=rate, rule=MomentumRule(momentum=self.lower_momentum))

    def _loss(self, view: AttackerView) -> Loss | UserLoss:
        loss = resolve_loss(self.loss, view)
        if loss is None:
            raise Refusal(
                "Bilevel repeats the training, and its loss is not known; set loss, or state it by --trained-with "
                "loss=ce."
            )
        return loss

    def _weight_decay(self, view: AttackerView) -> float:
        asked = self.weight_decay
        decay = float(view.training.weight_decay or 0.0) if asked is None else asked
        if decay <= 0 and not self._repeats_training:
            raise Refusal("Bilevel needs a training with weight decay, and the view states none; set weight_decay.")
        return decay

    @property
    def _repeats_training(self) -> bool:
        """Whether the lower level repeats the training step by step, so that it needs no stationary point."""
        return self.lower == "unrolled" and self.lower_start == "initial"

    def _labels(self, view: AttackerView) -> Int[Tensor, " candidate"]:
        candidates = self.candidates if self.labels is None else len(self.labels)
        if candidates is None:
            candidates = start_from(self.start).size
        if candidates is None:
            raise Refusal("Bilevel needs to know how many inputs were trained on; set candidates.")
        if self.candidates not in (None, candidates):
            raise Refusal(f"There are {candidates} labels for {self.candidates} candidates.")
        outputs = count_outputs(view.model, view.input_shape)
        if self.labels is None:
            return balanced_labels(candidates, outputs, torch.device("cpu"))
        if not all(0 <= label < max(2, outputs) for label in self.labels):
            raise Refusal(f"The network has {max(2, outputs)} classes, and a label lies outside them.")
        return torch.tensor(self.labels)

    def _result(self, view: AttackerView, match: "Match", first: Inputs, end: Minimum, start: Start) -> Reconstruction:
        (last,) = end.variables
        with torch.no_grad():
            before, after = match.distance(first), match.distance(last)
        # Adam moves away even from a perfect start; keep the start where it explains the weights better than the end.
        kept, distance = (first, before) if before <= after else (last, after)
        outcome = Outcome.CONVERGED if distance**2 <= self.tolerance else end.outcome
        moved = float((kept - first).square().mean().sqrt())
        return Reconstruction(
            inputs=view.to_pixels(kept.float()),
            certified=torch.zeros(len(kept), dtype=torch.bool),
            confidence=torch.full((len(kept),), max(0.0, 1.0 - distance) if math.isfinite(distance) else 0.0),
            outcome=outcome,
            message=_describe_result(outcome, distance, start),
            history=(end.history / len(kept)).float(),
            diagnostics={
                "steps": end.steps,
                "parameter_distance": distance,
                "parameter_distance_of_start": before,
                "moved": moved,
                "start": repr(start),
                "start_is_oracle": start.is_oracle,
                "lower_level": repr(match.lower),
            },
        )


@dataclass(frozen=True, kw_only=True)
class Match:
    """``‖θ*(x) − θ‖²/u²`` plus a box penalty: the distance of the weights trained on ``x`` from the target."""

    problem: TrainingProblem
    lower: LowerLevel
    origin: Flat
    """Weights at which the lower level begins."""
    target: Flat
    unit: Float[Tensor, ""]
    """Unit of distances: the norm of the part of the weights that the data explain."""
    box: Box | None = None
    box_weight: float = 0.0

    def objective(self, variables: Variables, elapsed: Float[Tensor, ""]) -> tuple[Float[Tensor, ""], Variables]:
        """Return the value times the number of candidates, so that it is of order one for each, and its gradient."""
        (inputs,) = variables
        weights, pullback = self.lower(self.problem, self.origin, inputs)
        left = weights - self.target
        gain = len(inputs) / self.unit.square()
        value, gradient = gain * left.dot(left), pullback(2 * gain * left)
        if self.box is not None and self.box_weight > 0:
            penalty, to_inputs = self.box.penalty(inputs, self.box_weight / inputs.shape[1])
            value, gradient = value + penalty, gradient + to_inputs
        return value, (gradient,)

    def distance(self, inputs: Inputs) -> float:
        """Return ``‖θ*(x) − θ‖/u``, without the box penalty."""
        weights = self.lower(self.problem, self.origin, inputs)[0]
        return float((weights - self.target).norm() / self.unit)


def _describe_result(outcome: Outcome, distance: float, start: Start) -> str:
    if outcome is Outcome.DIVERGED:
        return "The trained weights diverged; lower the learning rates. The result is the last finite state."
    oracle = " The search began at training inputs, which no attacker has." if start.is_oracle else ""
    falling = " and the distance was still falling" if outcome is Outcome.STEPS_EXHAUSTED else ""
    return (
        f"Training on these inputs misses the weights by {distance:.2%} of the part that data explain{falling}; other "
        f"inputs may explain them as well, so nothing here is proven.{oracle}"
    )
