"""Settings of a training: frozen, and complete enough to repeat it."""

import math
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from exhume.core.errors import ExhumeError
from exhume.core.settings import settings

LossName = Literal["mse", "huber", "bce", "ce"]
Optimiser = Literal["sgd", "adam", "adamw"]
Schedule = Literal["fast", "paper"]
Precision = Literal["float32", "float64"]
Momentum = Annotated[float, Field(ge=0, lt=1)]


@settings
class Training:
    """Settings of a training; the schedule decides what is None.

    ``paper`` is the schedule of Loo et al. (2023): learning rate ``N·2e-7``, momentum 0.9, 10⁶ steps, stop at a loss of
    1e-10. ``fast`` follows the same gradient flow in large steps: the learning rate is fitted to the network and the
    data (:func:`~exhume.training.step_size.fast_lr`; about 1e-2 at width 1024), the momentum rises with the steps, and
    the training stops after 20 000 steps, at a loss of 1e-10 (1e-3 for cross-entropies, which only approach zero), or
    when 1 000 steps no longer lower the loss by a thousandth.
    """

    loss: LossName = "mse"
    """Training loss."""
    optimiser: Optimiser = "sgd"
    """Optimiser."""
    schedule: Schedule = "fast"
    """Where settings that are not given come from."""
    lr: NonNegativeFloat | None = None
    """Learning rate."""
    momentum: Momentum | None = None
    """Momentum of SGD; for Adam and AdamW, the decay rate of the mean gradient."""
    momentum_rise: NonNegativeInt | None = None
    """Steps r of a momentum that rises as 1 − r/k with the step k until it reaches the momentum; 0: constant.

    A constant momentum overshoots along the steepest directions at once, and leaves the gradient flow there for good.
    One that rises this slowly stays overdamped: by the time it is large, the steep directions have come to rest.
    """
    batch_size: PositiveInt | None = None
    """Examples per step; all by default."""
    weight_decay: NonNegativeFloat = 0.0
    """Weight w of a penalty w/2·‖θ‖², coupled as in torch.optim.SGD and Adam; decoupled for AdamW."""
    steps: NonNegativeInt | None = None
    """Largest number of steps."""
    epochs: NonNegativeInt | None = None
    """Number of passes over the data, instead of steps."""
    stop_loss: NonNegativeFloat | None = None
    """Stop when the training loss is no higher than this; 0: never."""
    patience: NonNegativeInt | None = None
    """Stop when this many steps did not lower the loss, penalty included, by a thousandth; 0: never."""
    linearised: bool = False
    """Train the first-order expansion around the initial weights.

    For full-batch gradient descent on the squared error the result is computed in closed form.
    """
    keep_optimiser_state: bool = False
    """Keep the optimiser's memory of its last gradients, as checkpoints of training frameworks do."""
    precision: Precision = "float32"
    """Floating-point type of weights and data."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps is not None and self.epochs is not None:
            raise ExhumeError("Give a training either steps or epochs, not both.")
        if self.keep_optimiser_state and (self.has_closed_form or self.momentum == 0.0):
            raise ExhumeError("Only an optimiser with momentum, such as Adam, has a state to keep.")

    @property
    def has_closed_form(self) -> bool:
        """Whether the final weights of this training can be computed without steps."""
        plain = self.optimiser == "sgd" and self.batch_size is None and self.weight_decay == 0.0
        return self.linearised and self.loss == "mse" and plain

    def resolve(self, *, examples: int, fast_lr: Callable[[], float]) -> "Training":
        """Return the same training with every setting decided.

        Args:
            examples: the size of the training set.
            fast_lr: computes the learning rate of the fast schedule for this network and data; called where needed.
        """
        from exhume.training.losses import LOSSES  # loads torch, which settings alone do not need

        paper = self.schedule == "paper"
        batch_size = None if self.batch_size is None or self.batch_size >= examples else self.batch_size
        steps = self.steps
        if self.epochs is not None:
            steps = self.epochs * math.ceil(examples / (batch_size or examples))
        elif steps is None and paper:
            steps = 1_000_000
        elif steps is None and not self.has_closed_form:  # which costs the same for any time, so it needs no limit
            steps = 20_000
        stop_loss = 1e-10 if paper or LOSSES[self.loss].attained else 1e-3
        momentum, rise = (0.9, 0) if paper or self.optimiser != "sgd" else (0.9 if batch_size else 0.99, 32)
        if self.momentum is not None:
            momentum, rise = self.momentum, 0
        return replace(
            self,
            momentum=momentum,
            momentum_rise=rise if self.momentum_rise is None else self.momentum_rise,
            lr=self.lr if self.lr is not None else examples * 2e-7 if paper else fast_lr(),
            batch_size=batch_size,
            steps=steps,
            epochs=None,
            stop_loss=stop_loss if self.stop_loss is None else self.stop_loss,
            patience=(0 if paper else 1000) if self.patience is None else self.patience,
        )

    def momentum_at(self, step: int) -> float:
        """Return the momentum of a step, counted from 0; for resolved settings."""
        momentum, rise = self.momentum or 0.0, self.momentum_rise or 0
        return min(momentum, max(0.0, 1.0 - rise / (step + 1))) if rise else momentum

    def flow_time(self) -> float:
        """Return the time on the gradient flow after all steps, ``lr/(1 − momentum)`` each; for resolved settings."""
        if self.steps is None:
            return math.inf
        return (self.lr or 0.0) * math.fsum(1.0 / (1.0 - self.momentum_at(step)) for step in range(self.steps))

    def describe(self) -> dict[str, Any]:
        """Return the settings as JSON values; ``Training(**described)`` rebuilds them."""
        return asdict(self)
