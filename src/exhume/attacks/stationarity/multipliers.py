"""Multipliers: how much each candidate contributes, as duals of its outputs, with their derivatives.

At a stationary point the weights are ``θ = Σ_j Σ_c d_jc ∇θ f_c(x_j)``. The training determines which duals ``d`` are
possible: signed margins after a long training on a cross-entropy, any duals under weight decay, or the derivatives of a
known loss.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.clues.known_loss import UserLoss
from exhume.training.losses import margin_directions

Inputs = Float[Tensor, "*run candidate value"]
Raw = Float[Tensor, "..."]
"""The variables that are optimised in place of duals."""
Duals = Float[Tensor, "*run candidate output"]
Floor = Float[Tensor, "*run"]
Network = Callable[[Tensor], Tensor]
"""Map inputs to outputs, one row per candidate."""
Pullback = Callable[[Tensor], tuple[Tensor | None, Tensor]]
"""Map a gradient by duals to the gradients by inputs (None where duals do not depend on them) and by raw variables."""


@runtime_checkable
class Multipliers(Protocol):
    """A family of duals. All variables may have a first dimension of runs."""

    def shape(self, candidates: int, outputs: int) -> tuple[int, ...]:
        """Return the shape of the raw variables."""
        ...

    def duals(self, network: Network, inputs: Inputs, raw: Raw) -> tuple[Duals, Pullback]:
        """Return the duals of every candidate and their pullback."""
        ...

    def penalty(self, raw: Raw, floor: Floor) -> tuple[Float[Tensor, "..."], Raw]:
        """Return the penalty on infeasible multipliers and its gradient."""
        ...

    def draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw initial raw variables."""
        ...


class _Unconstrained:
    """Multipliers whose every value is feasible."""

    def penalty(self, raw: Raw, floor: Floor) -> tuple[Float[Tensor, "..."], Raw]:
        """Return zero and a zero gradient."""
        return raw.new_zeros(()), torch.zeros_like(raw)


@dataclass(frozen=True)
class MarginMultipliers:
    """``λ_j ≥ 0`` times the gradient of candidate ``j``'s margin, with a fixed label per candidate.

    The margin is ``y·f`` for one output (Haim et al. 2022, Eq. 3) and ``f_y − max_{c≠y} f_c`` for several (Buzaglo et
    al. 2023, Eq. 7). Multipliers below a floor are penalised, since a candidate with multiplier zero would never move.
    """

    labels: Int[Tensor, " candidate"]
    """Class indices; with one output, 0 stands for −1 and 1 for +1."""
    outputs: int
    """Number of outputs of the network."""

    def shape(self, candidates: int, outputs: int) -> tuple[int, ...]:
        """Return the shape of one multiplier per candidate."""
        return (candidates,)

    def duals(self, network: Network, inputs: Inputs, raw: Raw) -> tuple[Duals, Pullback]:
        """Return ``λ`` times the gradient of each margin by the outputs; the runner-up class counts as constant."""
        if self.outputs == 1:  # the direction is the label, so that the network need not be computed
            directions = margin_directions(raw.new_zeros(len(self.labels), 1), self.labels)
        else:
            directions = margin_directions(network(inputs), self.labels)
        return raw[..., None] * directions, lambda gradient: (None, (gradient * directions).sum(-1))

    def penalty(self, raw: Raw, floor: Floor) -> tuple[Float[Tensor, "..."], Raw]:
        """Return the sum of squared shortfalls from the floor, and its gradient."""
        shortfall = (floor[..., None] - raw).relu()
        return shortfall.square().sum(-1), -2 * shortfall

    def draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw uniformly from 0 to 1."""
        return torch.rand(shape, generator=generator)


@dataclass(frozen=True)
class RivalMultipliers(MarginMultipliers):
    """``Σ_c μ_jc·∇(f_y − f_c)`` with one multiplier ``μ_jc ≥ 0`` per rival class ``c``.

    The maximum margin of several classes has one constraint per rival, and a cross-entropy pushes all rivals away. A
    single multiplier for the nearest rival cannot express this.
    """

    def shape(self, candidates: int, outputs: int) -> tuple[int, ...]:
        """Return the shape of one multiplier per candidate and rival."""
        return (candidates, outputs - 1)

    def duals(self, network: Network, inputs: Inputs, raw: Raw) -> tuple[Duals, Pullback]:
        """Return the sum of all rivals' duals, with ``μ_jc = raw/rivals`` so that each candidate's has order one."""
        directions = self._directions.to(raw)
        duals = torch.einsum("...jr,jrc->...jc", raw, directions)
        return duals, lambda gradient: (None, torch.einsum("...jc,jrc->...jr", gradient, directions))

    @functools.cached_property
    def _directions(self) -> Float[Tensor, "candidate rival output"]:
        """The dual of each rival: computed once, and without waiting for a GPU, so that steps can be recorded."""
        places = torch.arange(self.outputs - 1, device=self.labels.device)
        rivals = places + (places >= self.labels[:, None])
        own = torch.nn.functional.one_hot(self.labels, self.outputs)[:, None]
        return (own - torch.nn.functional.one_hot(rivals, self.outputs)).double() / (self.outputs - 1)

    def penalty(self, raw: Raw, floor: Floor) -> tuple[Float[Tensor, "..."], Raw]:
        """Penalise a candidate whose mean over rivals is below the floor, and every value below zero."""
        shortfall, negative = (floor[..., None] - raw.mean(-1)).relu(), (-raw).relu()
        value = shortfall.square().sum(-1) + negative.square().sum((-2, -1))
        return value, -2 * (shortfall[..., None] / raw.shape[-1] + negative)


@dataclass(frozen=True)
class EitherLabelMultipliers(RivalMultipliers):
    """For one output: a multiplier ``≥ 0`` for each of the two labels, so that the search decides on the label."""

    def shape(self, candidates: int, outputs: int) -> tuple[int, ...]:
        """Return the shape of one multiplier per candidate and label."""
        return (candidates, 2)

    def duals(self, network: Network, inputs: Inputs, raw: Raw) -> tuple[Duals, Pullback]:
        """Return half the difference of both multipliers; the network need not be computed."""
        halves = 0.5 * (raw[..., 1:] - raw[..., :1])
        return halves, lambda gradient: (None, 0.5 * torch.cat([-gradient, gradient], -1))


@dataclass(frozen=True)
class FreeMultipliers(_Unconstrained):
    """One multiplier of any sign and size per output: possible for every loss with weight decay, known or not."""

    def shape(self, candidates: int, outputs: int) -> tuple[int, ...]:
        """Return the shape of one multiplier per candidate and output."""
        return (candidates, outputs)

    def duals(self, network: Network, inputs: Inputs, raw: Raw) -> tuple[Duals, Pullback]:
        """Return the multipliers themselves."""
        return raw, lambda gradient: (None, gradient)

    def draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw standard normal values."""
        return torch.randn(shape, generator=generator)


@dataclass(frozen=True)
class TiedMultipliers(_Unconstrained):
    """``−s·eʳ·∂ℓ(f(x_j), y_j)/∂f``: derivatives of a known loss under guessed targets, with one strength for all.

    The stationarity equation then states that the gradient of the training loss with weight decay vanishes. The
    strength is ``1/(N·w)`` for ``N`` examples and weight decay ``w``; an attacker who does not know both starts from a
    guess, which the search corrects.
    """

    loss: UserLoss
    targets: Tensor
    strength: float = 1.0

    def shape(self, candidates: int, outputs: int) -> tuple[int, ...]:
        """Return the shape of one log-strength for all candidates."""
        return (1,)

    def duals(self, network: Network, inputs: Inputs, raw: Raw) -> tuple[Duals, Pullback]:
        """Return the negative derivatives of the loss at the candidates, which change as the candidates move."""

        def negative_slopes(at: Tensor) -> Tensor:
            slope = torch.func.grad(self.loss)
            if at.ndim == 3:  # a loss takes the outputs of one run
                slope = torch.func.vmap(slope, in_dims=(0, None))
            slopes: Tensor = -at.shape[-2] * slope(network(at), self.targets)
            return slopes

        slopes, pull = torch.func.vjp(negative_slopes, inputs)[:2]
        strength = self.strength * raw.exp()[..., None]
        return strength * slopes, lambda gradient: (
            pull(strength * gradient)[0],
            (strength * gradient * slopes).sum((-2, -1))[..., None],
        )

    def draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Return zeros: the search starts with the given strength."""
        return torch.zeros(shape)
