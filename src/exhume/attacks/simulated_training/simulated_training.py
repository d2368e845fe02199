"""Simulated training: which inputs, trained on by the known recipe, change the weights as they were changed?"""

import math
import time
from dataclasses import replace
from typing import Annotated, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from exhume.attacks.attack import Attack
from exhume.attacks.simulated_training.match import ChangeMatch
from exhume.attacks.simulated_training.recipe import Optimiser, Recipe, fit_rate, plan_recipe
from exhume.clues.known_loss import UserLoss, balanced_labels, resolve_loss, with_stable_repr
from exhume.core.errors import Refusal
from exhume.core.run_context import OutOfTime, RunContext
from exhume.core.settings import settings
from exhume.gradient_sums.smooth_relu import GatedReLU, with_smooth_relus
from exhume.hypergradients import AdamRule, TrainingProblem
from exhume.hypergradients.problem import Statistics
from exhume.models.batch_norm import STATISTICS, statistics_changed
from exhume.optimise import Adam, Decay, Minimum, Variables, minimise
from exhume.optimise.box import Box
from exhume.records import AttackerView, Outcome, Reconstruction, count_outputs
from exhume.training.losses import Loss, signed_or_centred
from exhume.training.settings import LossName

Labels = Literal["balanced", "learned"]
Precision = Literal["float32", "float64"]
Share = Annotated[float, Field(ge=0, le=1)]

LABEL_RATE = 0.1
"""Step size of the logits of learned labels."""
LOG_RATE_RATE = 0.02
"""Step size of the logarithm of a learned rate."""
PLAN = "plan"
"""Name of the part of the work that decides the number of steps, and of its checkpoint."""
SAFETY = 0.4
"""Part of the duration of a step that is added to it in a plan; also the duration of a simulation without gradients."""
SURE = 2.0
"""First logit of the class that a learned label begins at; the others begin at zero."""


@settings
class SimulatedTraining(Attack):
    """Find inputs on which the known recipe changes the weights as the real training changed them.

    Trains from the initial weights on candidates and minimises ``1 − cos(Δ(x), Δ)`` between the simulated and the real
    change of the weights, with total variation, by Adam through all simulated steps (SimuDy: Tian et al., "Simulating
    Training Dynamics to Reconstruct Training Data from Deep Neural Networks", ICLR 2025). Works on any module,
    residual networks with batch normalisation included. Needs initial and final weights, the loss and the number of
    training inputs; the optimiser, the learning rate and the number of steps where the view states them.

    Nothing is proven: other inputs may make the same change.
    """

    candidates: PositiveInt | None = None
    """Number of training inputs; None: the number that the view states."""
    labels: Labels | tuple[int, ...] = "balanced"
    """``balanced``: classes of equal size, up to one; ``learned``: soft labels that begin there and move with the
    inputs; or the class of each candidate."""
    loss: LossName | UserLoss | None = None
    """A name, or any function of outputs and targets; None: the loss that the view states."""
    optimiser: Optimiser | None = None
    """None: the optimiser that the view states, or else SGD."""
    simulated_steps: PositiveInt = 4
    """Most steps of the simulated training. Longer trainings are simulated in this many longer steps."""
    coarse_steps: PositiveInt = 1
    """Most steps of the simulated training in the first part of the search, which costs less per step of Adam."""
    coarse_share: Share = 0.7
    """Fraction of the search with ``coarse_steps``; none of it for Adam, whose first step shows signs alone."""
    steps: PositiveInt = 1000
    """Steps of Adam on the candidates, each through a whole simulated training; before a deadline, as many as fit."""
    learning_rate: PositiveFloat = 0.02
    """Change of an input value per step."""
    decay: Decay = "cosine"
    init_std: NonNegativeFloat = 0.1
    """Standard deviation of the first guesses around zero, in network units."""
    variation_weight: NonNegativeFloat = 0.1
    """Weight of the mean difference of neighbouring pixels; only for images."""
    norm_weight: NonNegativeFloat = 0.01
    """Weight of the squared logarithm of the ratio of the norms of both changes."""
    statistics_weight: NonNegativeFloat = 0.1
    """Weight of the running statistics of batch normalisation, which the training left in the final weights."""
    sharpness: tuple[PositiveFloat, PositiveFloat] | None = (2.0, 50.0)
    """First and last β of the gates ``sigmoid(βz)`` that stand for the derivatives of ReLUs during the search; None:
    steps, whose own derivative is zero, so that the search does not see that a unit is about to switch."""
    box_weight: NonNegativeFloat = 1.0
    """Weight of the mean squared violation of the pixel range."""
    precision: Precision = "float32"
    tolerance: NonNegativeFloat = 0.02
    """Cosine distance up to which a search counts as converged."""
    patience: NonNegativeInt = 0
    """Number of steps without a decrease of the objective by a thousandth after which to stop; 0: never stop."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", with_stable_repr(self.loss))

    def check(self, view: AttackerView) -> None:
        """Refuse views without initial weights, change, loss or training set size."""
        if view.linearised:
            raise Refusal("SimulatedTraining trains the network itself, and this view is linearised.")
        if view.initial is None:
            raise Refusal("SimulatedTraining begins at the initial weights, and the view has no initial weights.")
        if all(torch.equal(view.initial[name], view.final[name]) for name in view.final):
            raise Refusal("The initial and the final weights are the same: nothing was trained.")
        self._loss(view)
        self._labels(view)
        self.recipe(view)

    def recover(self, view: AttackerView, context: RunContext) -> Reconstruction:
        """Minimise the distance of the simulated change from the real one, from noise."""
        recipe, labels = self.recipe(view), self._labels(view)
        match = self.match(view, recipe, labels)
        like = match.initial
        # Drawn on the CPU, so that a seed means the same on every device.
        inputs = (self.init_std * torch.randn(len(labels), view.input_size, generator=context.generator)).to(like)
        variables: Variables = (inputs,)
        if match.learns_labels:
            variables += (SURE * torch.nn.functional.one_hot(labels, len(match.targets)).to(like),)
        if match.learns_rate:
            match = self._fit_rate(match, inputs, labels, context)
            variables += (like.new_zeros(1),)
        coarse = self._coarsen(view, match, inputs, labels, context)
        rates = (self.learning_rate, *[LABEL_RATE] * match.learns_labels, *[LOG_RATE_RATE] * match.learns_rate)
        steps = self._plan_steps(match, coarse, variables, context)
        end = minimise(
            match.objective,
            variables,
            Adam(
                steps=steps,
                learning_rates=rates,
                decay=self.decay,
                tolerance=self.tolerance,
                patience=self.patience,
                inspection_steps=1,
                coarse_share=0.0 if coarse is None else self.coarse_share,
            ),
            coarse=None if coarse is None else coarse.objective,
            progress=context.report,
            stage="search",
            checkpoint=context.saved("search", {"attack": repr(self)}, inputs, match.change),
        )
        if steps < self.steps:
            planned = f"The time that was left allowed {steps} of {self.steps} steps."
            recipe = replace(recipe, assumptions=(*recipe.assumptions, planned))
        found = self._result(view, match, recipe, end, context)
        context.part(PLAN).discard_checkpoint()
        return found

    def recipe(self, view: AttackerView, simulated_steps: int | None = None) -> Recipe:
        """Return the steps that simulate the training of a view; by default at most ``simulated_steps`` of them."""
        return plan_recipe(
            view.training,
            candidates=len(self._labels(view)),
            simulated_steps=simulated_steps or self.simulated_steps,
            optimiser=self.optimiser,
            follows_statistics=self._follows_statistics(view),
        )

    def match(self, view: AttackerView, recipe: Recipe, labels: Int[Tensor, " candidate"]) -> ChangeMatch:
        """Return the objective of the search."""
        assert view.initial is not None
        loss = self._loss(view)
        dtype = torch.float64 if self.precision == "float64" else torch.float32
        table = _class_targets(loss, view).to(view.device, dtype)
        problem = TrainingProblem.of(view, loss, table[labels.to(view.device)], recipe.weight_decay, dtype)
        if self.sharpness is not None:
            problem = problem.with_model(with_smooth_relus(problem.model, GatedReLU))
        initial = problem.flat(view.initial)
        return ChangeMatch(
            problem=problem,
            lower=recipe.lower,
            initial=initial,
            change=problem.flat(view.final) - initial,
            targets=table if self.labels == "learned" else problem.targets,
            learns_labels=self.labels == "learned",
            learns_rate=not recipe.is_repeated,
            norm_weight=self.norm_weight,
            variation_weight=self.variation_weight,
            box=Box.of(view, dtype),
            box_weight=self.box_weight,
            statistics=_read_statistics(problem, view) if self._follows_statistics(view) else None,
            statistics_weight=self.statistics_weight,
            sharpness=self.sharpness,
        )

    def _follows_statistics(self, view: AttackerView) -> bool:
        assert view.initial is not None
        return self.statistics_weight > 0 and statistics_changed(view.model, view.initial, view.final)

    def _loss(self, view: AttackerView) -> Loss | UserLoss:
        loss = resolve_loss(self.loss, view)
        if loss is None:
            raise Refusal(
                "SimulatedTraining repeats the training, and its loss is not known; set loss, or state it by "
                "--trained-with loss=ce."
            )
        return loss

    def _labels(self, view: AttackerView) -> Int[Tensor, " candidate"]:
        classes = max(2, count_outputs(view.model, view.input_shape))
        if not isinstance(self.labels, str):
            if self.candidates not in (None, len(self.labels)):
                raise Refusal(f"There are {len(self.labels)} labels for {self.candidates} candidates.")
            if not all(0 <= label < classes for label in self.labels):
                raise Refusal(f"The network has {classes} classes, and a label lies outside them.")
            return torch.tensor(self.labels)
        candidates = self.candidates or view.training.training_size
        if candidates is None:
            raise Refusal("SimulatedTraining needs to know how many inputs were trained on; set candidates.")
        return balanced_labels(candidates, classes, torch.device("cpu"))

    def _coarsen(
        self, view: AttackerView, match: ChangeMatch, inputs: Tensor, labels: Tensor, context: RunContext
    ) -> ChangeMatch | None:
        """Return the objective of the first part of the search; None where it is that of the whole search."""
        # The first step of Adam has the length of the rate for every weight, so that its derivative is zero.
        if self.coarse_share == 0 or match.lower.steps <= self.coarse_steps or isinstance(match.lower.rule, AdamRule):
            return None
        lower = self.recipe(view, self.coarse_steps).lower
        return self._fit_rate(replace(match, lower=lower), inputs, labels, context)

    def _fit_rate(self, match: ChangeMatch, inputs: Tensor, labels: Tensor, context: RunContext) -> ChangeMatch:
        """Return the objective with simulated steps so long that noise changes the weights as much as they changed."""
        targets = match.targets[labels.to(inputs.device)] if match.learns_labels else match.targets

        def measure(rate: float) -> float:
            context.report("fit rate", 0, 1)
            return float(match.simulate(inputs, targets, inputs.new_full((), rate)).norm())

        rate = fit_rate(measure, float(match.change.norm()), match.lower.rate)
        return replace(match, lower=replace(match.lower, rate=rate))

    def _plan_steps(
        self, match: ChangeMatch, coarse: ChangeMatch | None, variables: Variables, context: RunContext
    ) -> int:
        """Return as many steps as fit before the deadline, by the duration of one; a resumed run keeps its plan."""
        saved = context.part(PLAN).saved(PLAN, {"attack": repr(self)}, match.change)
        known = None if saved is None else saved.load()
        if known is not None:
            return int(known[0]["steps"])
        steps = self.steps
        if math.isfinite(context.deadline):
            context.report("plan", 0, 1)
            fine = _time_step(match, variables)
            share = 0.0 if coarse is None else self.coarse_share
            mean = (1 - share) * fine + share * (0.0 if coarse is None else _time_step(coarse, variables))
            reserved = SAFETY * len(variables[0]) * fine  # for the confidence
            left = context.deadline - time.monotonic() - reserved
            steps = max(1, min(steps, int(left / (mean * (1 + SAFETY)))))
        if saved is not None:
            saved.save({"steps": steps}, {})
        return steps

    def _result(
        self, view: AttackerView, match: ChangeMatch, recipe: Recipe, end: Minimum, context: RunContext
    ) -> Reconstruction:
        inputs, targets, rate = match.read(end.variables)
        distance = float(match.distance(inputs, targets, rate))
        size = float(match.simulate(inputs, targets, rate).norm() / match.change.norm())
        outcome = Outcome.CONVERGED if distance <= self.tolerance else end.outcome
        if outcome is Outcome.CONVERGED and distance > self.tolerance:
            outcome = Outcome.STALLED
        pixels = view.to_pixels(inputs.float())
        return Reconstruction(
            inputs=pixels if view.bounds is None else pixels.clamp(*view.bounds),
            certified=torch.zeros(len(inputs), dtype=torch.bool),
            confidence=_confidence(match, inputs, targets, rate, distance, context).float(),
            outcome=outcome,
            message=_describe(outcome, distance, recipe),
            history=end.history.float(),
            diagnostics={
                "steps": end.steps,
                "cosine_distance": distance,
                "relative_norm": size,
                "simulated_training": repr(recipe.lower),
                "rate": float(rate),
                "assumptions": list(recipe.assumptions),
                "labels": _class_of(targets).tolist(),
            },
        )


def _time_step(match: ChangeMatch, variables: Variables) -> float:
    """Return the seconds of one evaluation of the objective."""
    started = time.monotonic()
    float(match.objective(variables, match.initial.new_zeros(()))[0])  # reading the value waits for a GPU
    return time.monotonic() - started


def _class_targets(loss: Loss | UserLoss, view: AttackerView) -> Float[Tensor, "class output"]:
    """Return the target of each class; a soft label has the mean of these."""
    classes = max(2, count_outputs(view.model, view.input_shape))
    every = torch.arange(classes)
    encoded = (loss.encode if isinstance(loss, Loss) else signed_or_centred)(every, classes)
    # The cross-entropy takes class indices, or else probabilities.
    return encoded if encoded.is_floating_point() else torch.nn.functional.one_hot(encoded, classes).float()


def _class_of(targets: Float[Tensor, "candidate output"]) -> Int[Tensor, " candidate"]:
    if targets.shape[1] > 1:
        return targets.argmax(1)
    return (targets[:, 0] > targets.mean()).long()


def _read_statistics(problem: TrainingProblem, view: AttackerView) -> tuple[Statistics, Statistics, Statistics]:
    """Return running statistics before and after, and the root mean square change within each layer and kind."""
    assert view.initial is not None
    before, after = (problem.running_statistics(weights) for weights in (view.initial, view.final))
    sizes = [len(view.final[f"{name}.{kind}"]) for name in problem.normalised for kind in STATISTICS]
    units = [part.square().mean().sqrt().expand(len(part)) for part in torch.split(after - before, sizes)]
    return before, after, torch.cat(units).clamp(min=torch.finfo(before.dtype).eps)


def _confidence(
    match: ChangeMatch, inputs: Tensor, targets: Tensor, rate: Tensor, distance: float, context: RunContext
) -> Float[Tensor, " candidate"]:
    """Return the part of the distance without a candidate that the candidate removes, from 0 to 1.

    A candidate without which the change is explained as well has no confidence; all have it where the change is
    explained to the last digit and every candidate is needed.
    """
    shares = []
    for number in range(len(inputs)):
        try:
            context.report("confidence", number, len(inputs))
        except OutOfTime as stop:
            if not stop.wraps_up:
                raise
            return torch.zeros(len(inputs))  # the images count, and a part of their confidences would mislead
        others = torch.arange(len(inputs), device=inputs.device) != number
        without = float(match.distance(inputs[others], targets[others], rate)) if len(inputs) > 1 else 1.0
        shares.append(1 - distance / without if without > 0 else 0.0)
    return torch.tensor(shares).nan_to_num(0.0).clamp(0.0, 1.0)


def _describe(outcome: Outcome, distance: float, recipe: Recipe) -> str:
    if outcome is Outcome.DIVERGED:
        return "The simulated training diverged; lower learning_rate. The result is the last finite state."
    falling = " and it was still falling: allow more steps" if outcome is Outcome.STEPS_EXHAUSTED else ""
    assumed = f" {' '.join(recipe.assumptions)}" if recipe.assumptions else ""
    return (
        f"The simulated change of the weights has a cosine distance of {distance:.2g} from the real one{falling}; "
        f"other inputs may change them alike, so nothing here is proven.{assumed}"
    )
