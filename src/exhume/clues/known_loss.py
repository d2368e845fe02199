"""What is publicly known of a training, for attacks that repeat it: its loss, and targets under guessed labels."""

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.core.errors import Refusal
from exhume.records import AttackerView, count_outputs
from exhume.training.losses import LOSSES, Loss, signed_or_centred
from exhume.training.settings import LossName

UserLoss = Callable[[Tensor, Tensor], Tensor]
"""From outputs and targets of a batch (±1, or one-hot − 1/C) to its mean loss."""

PROBED_OUTPUTS = (1, 2, 10)
"""Numbers of outputs at which a user's loss is tried out, to tell it from others."""


@dataclass(frozen=True, repr=False)
class OwnLoss:
    """A loss that a user passed in, shown by its name and a digest of what it does.

    The same function of another process looks the same, so that work under way can be taken up again; another function
    of the same name does not.
    """

    function: UserLoss

    def __call__(
        self, outputs: Float[Tensor, "candidate output"], targets: Float[Tensor, "candidate output"]
    ) -> Float[Tensor, ""]:
        """Return the mean loss of a batch."""
        return self.function(outputs, targets)

    def __repr__(self) -> str:
        name = getattr(self.function, "__qualname__", type(self.function).__qualname__)
        return f"{name}#{self._digest}"

    @functools.cached_property
    def _digest(self) -> str:
        values = [_tried(self.function, outputs) for outputs in PROBED_OUTPUTS]
        return hashlib.sha256(" ".join(values).encode()).hexdigest()[:12]


def _tried(loss: UserLoss, outputs: int) -> str:
    """Return what a loss says to examples of fixed outputs, one by one, as text short enough for any machine."""
    generator = torch.Generator().manual_seed(outputs)
    said = torch.randn(8, outputs, generator=generator, dtype=torch.float64) * torch.logspace(-1, 1, 8)[:, None]
    wanted = signed_or_centred(torch.arange(8) % max(2, outputs), max(2, outputs)).double()
    try:
        return " ".join(f"{float(loss(one[None], other[None])):.6g}" for one, other in zip(said, wanted, strict=True))
    except Exception as error:  # a loss for another number of outputs may raise anything
        return type(error).__name__


def shown_by_what_it_does(loss: LossName | UserLoss | None) -> LossName | UserLoss | None:
    """Return a loss as settings keep it: a function in a wrapper whose ``repr`` is the same in every process."""
    return loss if loss is None or isinstance(loss, str | OwnLoss) else OwnLoss(loss)


def known_loss(asked: LossName | UserLoss | None, view: AttackerView) -> Loss | UserLoss | None:
    """Return the loss that was asked for, or else what the view says of the training; None: nobody knows.

    Raises:
        Refusal: when the view names a loss that is not known here.
    """
    named = asked if asked is not None else view.training.get("loss")
    if named is None or callable(named):
        return named
    if str(named) not in LOSSES:
        raise Refusal(
            f"The network was trained with {named!r}, which is no loss known here; "
            f"set loss to {', '.join(LOSSES)}, or to a function."
        )
    return LOSSES[str(named)]


def guessed_targets(loss: Loss | UserLoss, labels: Int[Tensor, " candidate"], view: AttackerView) -> Tensor:
    """Return class indices as the loss takes them."""
    encode = loss.encode if isinstance(loss, Loss) else signed_or_centred
    return encode(labels, max(2, count_outputs(view.model, view.input_shape)))


def balanced_labels(candidates: int, outputs: int, device: torch.device) -> Int[Tensor, " candidate"]:
    """Return labels that give every class as many candidates as any other, or one more.

    >>> balanced_labels(5, 1, torch.device("cpu")).tolist()
    [0, 1, 0, 1, 0]
    """
    return torch.arange(candidates, device=device) % (2 if outputs == 1 else outputs)
