"""What is publicly known of a training, for attacks that repeat it: its loss, and targets under guessed labels."""

from collections.abc import Callable

from jaxtyping import Int
from torch import Tensor

from exhume.records import AttackerView, count_outputs
from exhume.training.losses import LOSSES, Loss, signed_or_centred
from exhume.training.settings import LossName

UserLoss = Callable[[Tensor, Tensor], Tensor]
"""From outputs and targets of a batch (±1, or one-hot − 1/C) to its mean loss."""


def known_loss(asked: LossName | UserLoss | None, view: AttackerView) -> Loss | UserLoss | None:
    """Return the loss that was asked for, or else what the view says of the training; None: nobody knows."""
    named = asked if asked is not None else view.training.get("loss")
    return named if callable(named) else LOSSES.get(str(named))


def guessed_targets(loss: Loss | UserLoss, labels: Int[Tensor, " candidate"], view: AttackerView) -> Tensor:
    """Return class indices as the loss takes them."""
    encode = loss.encode if isinstance(loss, Loss) else signed_or_centred
    return encode(labels, max(2, count_outputs(view.model, view.input_shape)))
