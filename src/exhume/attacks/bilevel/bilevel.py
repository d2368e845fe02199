"""Training inputs as the solution of a bilevel problem: which data, trained on, give these weights?"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.attacks.attack import Attack
from exhume.attacks.bilevel.hypergradients import (
    Flat,
    Implicit,
    Inputs,
    LowerLevel,
    TrainingProblem,
    Unrolled,
    one_step,
)
from exhume.attacks.bilevel.starts import Start, start_from
from exhume.clues.known_loss import UserLoss, balanced_labels, encode_labels, resolve_loss, with_stable_repr
from exhume.core.errors import ExhumeError, Refusal
from exhume.core.run_context import RunContext
from exhume.models.architecture import choose
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


@dataclass(frozen=True, kw_only=True)
class Bilevel(Attack):
    """Find inputs on which a training ends with the weights that were released.

    The upper level moves inputs ``x`` to lower ``‖θ*(x) − θ‖²``, the lower level trains: ``θ*(x)`` minimises the loss
    with weight decay on ``x`` ("Training Data Reconstruction: Privacy due to Uncertainty?", arXiv 2412.08544). Needs
    the final weights, the loss, the weight decay and the number of training inputs; labels are taken to be balanced.

    What it returns explains the weights, and so may many other sets of inputs: read it together with its ``start``, and
    never as a proof.
    """

    candidates: int | None = None
    """How many inputs to look for: as many as were trained on. None: as many as the start holds."""
    start: Start | str = "noise"
    """Where the search begins: ``Noise``, ``Images`` or a ``Mixture`` (``starts.py``), or the path of your images."""
    labels: tuple[int, ...] | None = None
    """The class of each candidate; None: every class has as many as any other, or one more."""
    loss: LossName | UserLoss | None = None
    """A name, or any function of outputs and targets; None: what the view says."""
    weight_decay: float | None = None
    """None: what the view says. Without any a training never comes to rest; it can only be repeated, ``unrolled`` from
    its initial weights."""
    lower: Lower = "auto"
    """How the lower level trains and is differentiated. ``implicit``: to rest, by the implicit function theorem;
    ``unrolled``: for ``lower_steps``, through each of them; ``stationary``: a single step of length 1/w, which is the
    tied :class:`~exhume.attacks.Stationarity` in this attack's terms; ``auto``: implicit for an affine classifier,
    whose training is strongly convex, and unrolled for any other network."""
    lower_start: From = "final"
    """Where the lower level begins: at the released weights, which it should not leave, or at known initial ones."""
    lower_steps: int = 40
    lower_rate: float | None = None
    """The length of an unrolled step; None: what the curvature at the start allows."""
    lower_momentum: float = 0.9
    newton_steps: int = 12
    """Of an implicit lower level, at most."""
    iterations: int = 250
    """Of conjugate gradients in each of them, at most. Work recorded on a GPU always takes the most."""
    steps: int = 300
    learning_rate: float = 0.02
    """How far a value moves in a step of the upper level."""
    decay: Decay = "cosine"
    box_weight: float = 1.0
    """Of values outside the pixel range: what all of them together cost, relative to explaining nothing."""
    precision: Precision = "float64"
    tolerance: float = 1e-4
    """Ending with weights whose squared distance is no more than this part of their square (for a training from known
    weights: of their change) counts as converged."""
    patience: int = 0
    """Stop when so many steps did not lower the objective by a thousandth; 0: never."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", with_stable_repr(self.loss))
        for name, kind in (("lower", Lower), ("lower_start", From), ("precision", Precision), ("decay", Decay)):
            choose(name, getattr(self, name), get_args(kind))
        if isinstance(self.loss, str):
            choose("loss", self.loss, get_args(LossName))
        whole = dict.fromkeys(("candidates", "steps", "lower_steps", "newton_steps", "iterations"), 1)
        least = whole | dict.fromkeys(("learning_rate", "lower_rate", "box_weight"), 0)
        for name, value in least.items():
            if (asked := getattr(self, name)) is not None and not value <= asked < math.inf:
                raise ExhumeError(f"Bilevel needs {name} of at least {value}, not {asked}.")
        if self.weight_decay is not None and not (self.weight_decay > 0 or self._repeats):
            raise ExhumeError(f"Bilevel needs a positive weight_decay, not {self.weight_decay}.")
        if not 0 <= self.lower_momentum < 1:
            raise ExhumeError(f"Bilevel needs a lower_momentum from 0 to below 1, not {self.lower_momentum}.")

    def check(self, view: AttackerView) -> None:
        """Refuse where nobody says how the training went or how many inputs it had."""
        if view.linearised:
            raise Refusal("Bilevel trains networks as they are, and this view is linearised.")
        if self.lower_start == "initial" and view.initial is None:
            raise Refusal("The lower level is to begin at the initial weights, and the view has no initial weights.")
        self._loss(view)
        self._weight_decay(view)
        self._labels(view)

    def recover(self, view: AttackerView, context: RunContext) -> Reconstruction:
        """Minimise the distance of trained weights from the start that was asked for."""
        start, labels = start_from(self.start), self._labels(view)
        problem = self.problem(view, labels)
        like = next(problem.model.parameters())
        drawn = start.draw(view, labels, context.generator)
        inputs = view.to_model(drawn.to(like)).flatten(1).contiguous()
        target = problem.flat(view.final)
        origin = target if self.lower_start == "final" else problem.flat(view.initial or {})
        # Weights that weight decay holds are all due to the data; of a training from known weights only the change is.
        due = target if self.lower_start == "final" else target - origin
        match = Match(
            problem=problem,
            lower=self.lower_level(view, problem, inputs),
            origin=origin,
            target=target,
            unit=due.norm().clamp(min=torch.finfo(due.dtype).tiny),
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
        """Return the training as the attacker takes it to have been."""
        loss = self._loss(view)
        dtype = torch.float64 if self.precision == "float64" else torch.float32
        return TrainingProblem.of(view, loss, encode_labels(loss, labels, view), self._weight_decay(view), dtype)

    def lower_level(self, view: AttackerView, problem: TrainingProblem, inputs: Inputs) -> LowerLevel:
        """Return how the lower level trains; an unrolled step is as long as the curvature at ``inputs`` allows."""
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
        return Unrolled(steps=self.lower_steps, rate=rate, momentum=self.lower_momentum)

    def _loss(self, view: AttackerView) -> Loss | UserLoss:
        loss = resolve_loss(self.loss, view)
        if loss is None:
            raise Refusal("Bilevel trains as the network was trained, and nobody says with which loss; set loss.")
        return loss

    def _weight_decay(self, view: AttackerView) -> float:
        asked = self.weight_decay
        decay = float(view.training.weight_decay or 0.0) if asked is None else asked
        if decay <= 0 and not self._repeats:
            raise Refusal(
                "Bilevel needs a training that weight decay brings to rest, and none is known of; set weight_decay."
            )
        return decay

    @property
    def _repeats(self) -> bool:
        """Whether the lower level repeats the training step by step, so that it need not come to rest."""
        return self.lower == "unrolled" and self.lower_start == "initial"

    def _labels(self, view: AttackerView) -> Int[Tensor, " candidate"]:
        candidates = self.candidates if self.labels is None else len(self.labels)
        if candidates is None:
            candidates = start_from(self.start).size
        if candidates is None:
            raise Refusal("Bilevel must be told how many inputs were trained on; set candidates.")
        if self.candidates not in (None, candidates):
            raise Refusal(f"There are {candidates} labels for {self.candidates} candidates.")
        outputs = count_outputs(view.model, view.input_shape)
        if self.labels is None:
            return balanced_labels(candidates, outputs, torch.device("cpu"))
        if not all(0 <= label < max(2, outputs) for label in self.labels):
            raise Refusal(f"The network tells {max(2, outputs)} classes apart, and a label is none of them.")
        return torch.tensor(self.labels)

    def _result(self, view: AttackerView, match: "Match", first: Inputs, end: Minimum, start: Start) -> Reconstruction:
        (last,) = end.variables
        with torch.no_grad():
            before, after = match.distance(first), match.distance(last)
        # Adam leaves even a perfect start; one that explains the weights better than all that followed is the answer.
        kept, distance = (first, before) if before <= after else (last, after)
        outcome = Outcome.CONVERGED if distance**2 <= self.tolerance else end.outcome
        moved = float((kept - first).square().mean().sqrt())
        return Reconstruction(
            inputs=view.to_pixels(kept.float()),
            certified=torch.zeros(len(kept), dtype=torch.bool),
            confidence=torch.full((len(kept),), max(0.0, 1.0 - distance) if math.isfinite(distance) else 0.0),
            outcome=outcome,
            message=_sentence(outcome, distance, start),
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
    """``‖θ*(x) − θ‖²/u²`` with a soft box around inputs: how far a training on ``x`` ends from the target."""

    problem: TrainingProblem
    lower: LowerLevel
    origin: Flat
    """Where the lower level begins."""
    target: Flat
    unit: Float[Tensor, ""]
    """What distances are relative to: the norm of what the data have made of the weights."""
    box: Box | None = None
    box_weight: float = 0.0

    def objective(self, variables: Variables, elapsed: Float[Tensor, ""]) -> tuple[Float[Tensor, ""], Variables]:
        """Return the value, times the number of candidates so that each has a say of order one, and its gradient."""
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
        """Return ``‖θ*(x) − θ‖/u``, without the box."""
        weights = self.lower(self.problem, self.origin, inputs)[0]
        return float((weights - self.target).norm() / self.unit)


def _sentence(outcome: Outcome, distance: float, start: Start) -> str:
    if outcome is Outcome.DIVERGED:
        return "The trained weights left all bounds; lower the learning rates. Given is the last finite state."
    oracle = " It began at training inputs, which no attacker has." if start.is_oracle else ""
    more = "" if outcome is not Outcome.STEPS_EXHAUSTED else " and was still coming nearer"
    return (
        f"A training on these inputs misses the weights by {distance:.2%} of what data made of them{more}; other "
        f"inputs may explain them as well, so nothing here is proven.{oracle}"
    )
