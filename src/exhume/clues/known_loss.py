"""The loss of a training, for attacks that repeat it: named by the user or by the view, with targets for labels."""

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
"""Numbers of outputs at which a user's loss is evaluated for its digest."""


@dataclass(frozen=True, repr=False)
class CustomLoss:
    """A loss function of the user, whose ``repr`` is its name and a digest of its values.

    The same function has the same ``repr`` in every process, so that a checkpoint can be continued; another function of
    the same name has a different one.
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
        values = [_evaluate_on_probes(self.function, outputs) for outputs in PROBED_OUTPUTS]
        return hashlib.sha256(" ".join(values).encode()).hexdigest()[:12]


def _evaluate_on_probes(loss: UserLoss, outputs: int) -> str:
    """Return the loss of fixed examples, one by one, with few enough digits to be the same on every machine."""
    generator = torch.Generator().manual_seed(outputs)
    probes = torch.randn(8, outputs, generator=generator, dtype=torch.float64) * torch.logspace(-1, 1, 8)[:, None]
    targets = signed_or_centred(torch.arange(8) % max(2, outputs), max(2, outputs)).double()
    try:
        pairs = zip(probes, targets, strict=True)
        return " ".join(f"{float(loss(output[None], target[None])):.6g}" for output, target in pairs)
    except Exception as error:  # a loss for another number of outputs may raise anything
        return type(error).__name__


def with_stable_repr(loss: LossName | UserLoss | None) -> LossName | UserLoss | None:
    """Return a loss as settings store it: a function is wrapped so that its ``repr`` is the same in every process."""
    return loss if loss is None or isinstance(loss, str | CustomLoss) else CustomLoss(loss)


def resolve_loss(requested: LossName | UserLoss | None, view: AttackerView) -> Loss | UserLoss | None:
    """Return the requested loss, or else the one the view names; None where neither does.

    Raises:
        Refusal: when the view names an unknown loss.
    """
    named = requested if requested is not None else view.training.loss
    if named is None or callable(named):
        return named
    if str(named) not in LOSSES:
        raise Refusal(
            f"The network was trained with the unknown loss {named!r}; "
            f"set loss to {', '.join(LOSSES)}, or to a function."
        )
    return LOSSES[str(named)]


def encode_targets(loss: Loss | UserLoss, labels: Int[Tensor, " candidate"], view: AttackerView) -> Tensor:
    """Encode class indices as targets of the loss."""
    encode = loss.encode if isinstance(loss, Loss) else signed_or_centred
    return encode(labels, max(2, count_outputs(view.model, view.input_shape)))


def balanced_labels(candidates: int, outputs: int, device: torch.device) -> Int[Tensor, " candidate"]:
    """Return labels that assign equally many candidates to every class, up to one.

    >>> balanced_labels(5, 1, torch.device("cpu")).tolist()
    [0, 1, 0, 1, 0]
    """
    return torch.arange(candidates, device=device) % (2 if outputs == 1 else outputs)
