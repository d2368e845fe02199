"""The stationarity attack: training inputs from the final weights of a training with weight decay."""

from typing import Literal

from pydantic import PositiveFloat

from exhume.attacks.stationarity.final_weights import FinalWeights
from exhume.attacks.stationarity.multipliers import FreeMultipliers, Multipliers, TiedMultipliers
from exhume.clues.known_loss import UserLoss, balanced_labels, encode_targets, resolve_loss, with_stable_repr
from exhume.clues.subspace import InputSubspace
from exhume.core.errors import ExhumeError, Refusal
from exhume.core.settings import settings
from exhume.optimise.precision import dtype_of
from exhume.records import AttackerView, count_outputs
from exhume.training.losses import Loss
from exhume.training.settings import LossName

Ties = Literal["free", "tied"]


@settings
class Stationarity(FinalWeights):
    """Find inputs whose gradients, with multipliers of any sign, add up to the weights themselves.

    At a stationary point of a training with weight decay ``w``, ``θ = Σ_i l_i ∇θ f(x_i)`` with
    ``l_i = −ℓ'(f(x_i), y_i)/(N·w)`` for any differentiable loss (Buzaglo et al. 2023, section 5). ``free`` multipliers
    need no knowledge of the loss. ``tied`` multipliers are its derivatives at the candidates, under balanced labels. An
    attacker who knows the loss has far fewer wrong solutions to avoid: the gradient of the training has to vanish.
    """

    multiplier: Ties = "free"
    loss: LossName | UserLoss | None = None
    """Loss of ``tied`` multipliers: a name, or any function of outputs and targets; None: the loss that the view
    states."""
    weight_decay: PositiveFloat | None = None
    """Weight decay of ``tied`` multipliers; None: the value that the view states, or else a guess that the search
    corrects."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", with_stable_repr(self.loss))
        if self.splits and self.multiplier == "tied":
            raise ExhumeError("Stationarity: splits halve multipliers, so they need multiplier='free'.")

    def check(self, view: AttackerView) -> None:
        """Refuse multipliers tied to an unknown loss, and what every such attack refuses."""
        if self.multiplier == "tied":
            self._loss(view)
        super().check(view)

    def multipliers(self, view: AttackerView, candidates: int, span: InputSubspace | None) -> Multipliers:
        """Return free multipliers, or the derivatives of the loss under balanced labels."""
        if self.multiplier == "free":
            return FreeMultipliers()
        loss, outputs = self._loss(view), count_outputs(view.model, view.input_shape)
        labels = balanced_labels(candidates, outputs, view.device)
        targets = encode_targets(loss, labels, view)
        dtype = dtype_of(self.precision)
        size = candidates if span is None else span.rank
        decay = self.weight_decay or float(view.training.weight_decay or 0.0) or 1e-3
        return TiedMultipliers(loss, targets.to(dtype) if targets.is_floating_point() else targets, 1 / (size * decay))

    @property
    def natural_unit(self) -> bool:
        """Whether multipliers are free; derivatives of a loss have their own scale."""
        return self.multiplier == "free"

    def _loss(self, view: AttackerView) -> "Loss | UserLoss":
        loss = resolve_loss(self.loss, view)
        if loss is None:
            raise Refusal("Multipliers tied to the loss need to know it; set loss, or multiplier='free'.")
        return loss
