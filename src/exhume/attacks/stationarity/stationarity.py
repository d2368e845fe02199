"""Training inputs from the final weights of any network that weight decay brought to rest."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch

from exhume.attacks.stationarity.final_weights import FinalWeights
from exhume.attacks.stationarity.multipliers import FreeMultipliers, Multipliers, TiedMultipliers
from exhume.clues.known_loss import UserLoss, balanced_labels, encode_labels, resolve_loss, with_stable_repr
from exhume.clues.subspace import InputSubspace
from exhume.core.errors import ExhumeError, Refusal
from exhume.models.architecture import choose
from exhume.records import AttackerView, count_outputs
from exhume.training.losses import Loss
from exhume.training.settings import LossName

Ties = Literal["free", "tied"]


@dataclass(frozen=True, kw_only=True)
class Stationarity(FinalWeights):
    """Find inputs whose gradients, with multipliers of any sign, add up to the weights themselves.

    Where a training with weight decay ``w`` comes to rest, ``θ = Σ_i l_i ∇θ f(x_i)`` with
    ``l_i = −ℓ'(f(x_i), y_i)/(N·w)`` for any differentiable loss (Buzaglo et al. 2023, section 5). ``free`` multipliers
    need to know nothing of the loss;
    ``tied`` ones are its slopes at the candidates, under balanced labels, which leaves an attacker who knows the loss
    far fewer ways to be wrong: it asks that the gradient of the training vanish.
    """

    multiplier: Ties = "free"
    loss: LossName | UserLoss | None = None
    """Of ``tied`` multipliers: a name, or any function of outputs and targets; None: what the view says."""
    weight_decay: float | None = None
    """Of ``tied`` multipliers; None: what the view says, or else a first guess that is corrected on the way."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "loss", with_stable_repr(self.loss))
        choose("multiplier", self.multiplier, get_args(Ties))
        if isinstance(self.loss, str):
            choose("loss", self.loss, get_args(LossName))
        if self.weight_decay is not None and not self.weight_decay > 0:
            raise ExhumeError(f"Stationarity needs a positive weight_decay, not {self.weight_decay}.")

    def check(self, view: AttackerView) -> None:
        """Refuse ties to a loss that nobody has named."""
        if self.multiplier == "tied":
            self._loss(view)
        super().check(view)

    def multipliers(self, view: AttackerView, candidates: int, span: InputSubspace | None) -> Multipliers:
        """Return free multipliers, or the slopes of the loss under balanced labels."""
        if self.multiplier == "free":
            return FreeMultipliers()
        loss, outputs = self._loss(view), count_outputs(view.model, view.input_shape)
        labels = balanced_labels(candidates, outputs, view.device)
        targets = encode_labels(loss, labels, view)
        dtype = torch.float64 if self.precision == "float64" else torch.float32
        size = candidates if span is None else span.rank
        decay = self.weight_decay or float(view.training.weight_decay or 0.0) or 1e-3
        return TiedMultipliers(loss, targets.to(dtype) if targets.is_floating_point() else targets, 1 / (size * decay))

    @property
    def natural_unit(self) -> bool:
        """Slopes of a loss have a size of their own."""
        return self.multiplier == "free"

    def _loss(self, view: AttackerView) -> "Loss | UserLoss":
        loss = resolve_loss(self.loss, view)
        if loss is None:
            raise Refusal("Multipliers tied to the loss need to know it; set loss, or take free multipliers.")
        return loss
