"""How a network is trained: frozen settings, complete enough to repeat it."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self, get_args

from exhume.errors import ExhumeError
from exhume.models.architecture import choose
from exhume.training.losses import LOSSES

LossName = Literal["mse", "huber", "bce", "ce"]
Optimiser = Literal["sgd", "adam"]
Schedule = Literal["fast", "paper"]
Precision = Literal["float32", "float64"]


@dataclass(frozen=True, kw_only=True)
class Training:
    """Settings of a training; what is left at None the schedule decides.

    ``paper`` is the schedule of Loo et al. (2023): learning rate ``N·2e-7``, 10⁶ steps, stop at a loss of 1e-10.
    ``fast`` follows the same gradient flow in larger steps: a tenth of the largest stable learning rate at the start
    (about 1e-2 at width 1024; see :func:`~exhume.training.step_size.fast_lr`), up to 20 000 steps, stop at a loss of
    1e-10 (1e-3 for cross-entropies, which only approach zero) or when 1 000 steps no longer lower the loss by a
    thousandth.
    """

    loss: LossName = "mse"
    optimiser: Optimiser = "sgd"
    schedule: Schedule = "fast"
    lr: float | None = None
    momentum: float = 0.9
    """Of SGD; for Adam, how slowly its mean of gradients decays."""
    batch_size: int | None = None
    """How many examples a step sees; None: all."""
    weight_decay: float = 0.0
    """``w`` of a penalty ``w/2·‖θ‖²``, coupled as in ``torch.optim.SGD`` and ``Adam``."""
    steps: int | None = None
    epochs: int | None = None
    """Passes over the data, instead of steps."""
    stop_loss: float | None = None
    """Stop as soon as the training loss is no higher; 0: never."""
    patience: int | None = None
    """Stop when so many steps did not lower the loss by a thousandth; 0: never."""
    linearised: bool = False
    """Train the first-order expansion around the start; in closed form for full-batch descent on squares."""
    precision: Precision = "float32"
    seed: int = 0

    def __post_init__(self) -> None:
        words = {"loss": LossName, "optimiser": Optimiser, "schedule": Schedule, "precision": Precision}
        for name, kind in words.items():
            choose(name, getattr(self, name), get_args(kind))
        if self.steps is not None and self.epochs is not None:
            raise ExhumeError("Give a training either steps or epochs, not both.")
        for name, least in (("lr", 0.0), ("batch_size", 1), ("steps", 0), ("epochs", 0), ("weight_decay", 0.0)):
            value = getattr(self, name)
            if value is not None and not least <= value < math.inf:
                raise ExhumeError(f"A training needs a {name} of at least {least:g}, not {value}.")
        if not 0.0 <= self.momentum < 1.0:
            raise ExhumeError(f"A training needs a momentum from 0 to below 1, not {self.momentum}.")

    @property
    def has_closed_form(self) -> bool:
        """Whether the end of this training can be written down instead of walked to."""
        plain = self.optimiser == "sgd" and self.batch_size is None and self.weight_decay == 0.0
        return self.linearised and self.loss == "mse" and plain

    def resolved(self, *, examples: int, fast_lr: Callable[[], float]) -> Self:
        """Return the same training with nothing left to decide, for so many examples.

        Args:
            examples: the size of the training set.
            fast_lr: finds the learning rate of the fast schedule for this network and these data, if that is needed.
        """
        paper = self.schedule == "paper"
        batch_size = None if self.batch_size is None or self.batch_size >= examples else self.batch_size
        steps = self.steps
        if self.epochs is not None:
            steps = self.epochs * math.ceil(examples / (batch_size or examples))
        elif steps is None and paper:
            steps = 1_000_000
        elif steps is None and not self.has_closed_form:  # which costs the same for any time, so takes what it needs
            steps = 20_000
        stop_loss = 1e-10 if paper or LOSSES[self.loss].attained else 1e-3
        return replace(
            self,
            lr=self.lr if self.lr is not None else examples * 2e-7 if paper else fast_lr(),
            batch_size=batch_size,
            steps=steps,
            epochs=None,
            stop_loss=stop_loss if self.stop_loss is None else self.stop_loss,
            patience=(0 if paper else 1000) if self.patience is None else self.patience,
        )

    def describe(self) -> dict[str, Any]:
        """Return the settings as JSON values; ``Training(**described)`` rebuilds them."""
        return asdict(self)
