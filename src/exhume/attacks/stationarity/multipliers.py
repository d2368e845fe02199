"""How a candidate weighs in: from its multipliers to the duals of its outputs, with the way back for gradients.

At a stationary point the weights are ``θ = Σ_j Σ_c d_jc ∇θ f_c(x_j)``. What the duals ``d`` may be is what the training
was: signed margins after a long training on a cross-entropy, anything under weight decay, or slopes of a known loss.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.clues.known_loss import UserLoss

Inputs = Float[Tensor, "candidate value"]
Raw = Float[Tensor, "..."]
"""What is optimised in place of duals."""
Duals = Float[Tensor, "candidate output"]
Network = Callable[[Tensor], Tensor]
"""From inputs to outputs, one row a candidate."""
Pull = Callable[[Tensor], tuple[Tensor | None, Tensor]]
"""From a gradient by duals to gradients by inputs (None: there is none) and by what is optimised."""


@runtime_checkable
class Multipliers(Protocol):
    """A family of duals."""

    def shape(self, candidates: int, outputs: int) -> tuple[int, ...]:
        """Return the shape of what is optimised."""
        ...

    def duals(self, network: Network, inputs: Inputs, raw: Raw) -> tuple[Duals, Pull]:
        """Return the duals of every candidate, and the way back."""
        ...

    def penalty(self, raw: Raw, floor: Float[Tensor, ""]) -> tuple[Float[Tensor, ""], Raw]:
        """Return what infeasible multipliers cost, and its gradient."""
        ...

    def draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw first guesses."""
        ...


@dataclass(frozen=True)
class MarginMultipliers:
    """``λ_j ≥ 0`` times the gradient of candidate ``j``'s margin, under a fixed label for each.

    The margin is ``y·f`` of one output (Haim et al. 2022, Eq. 3) and ``f_y − max_{c≠y} f_c`` of several (Buzaglo et al.
    2023, Eq. 7). Multipliers below a floor are penalised, since a candidate without weight would never move again.
    """

    labels: Int[Tensor, " candidate"]
    """Class indices; of one output, 0 for −1 and 1 for +1."""

    def shape(self, candidates: int, outputs: int) -> tuple[int, ...]:
        """Return one multiplier a candidate."""
        return (candidates,)

    def duals(self, network: Network, inputs: Inputs, raw: Raw) -> tuple[Duals, Pull]:
        """Return ``λ`` times the direction of each margin; the best other class is looked up, not differentiated."""
        towards = margin_directions(network(inputs), self.labels)
        return raw[:, None] * towards, lambda gradient: (None, (gradient * towards).sum(-1))

    def penalty(self, raw: Raw, floor: Float[Tensor, ""]) -> tuple[Float[Tensor, ""], Raw]:
        """Return the squares of what falls short of the floor."""
        short = (floor - raw).relu()
        return short.square().sum(), -2 * short

    def draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw evenly from 0 to 1."""
        return torch.rand(shape, generator=generator)


@dataclass(frozen=True)
class FreeMultipliers:
    """Any sign and size, one an output: enough for every loss with weight decay, known or not."""

    def shape(self, candidates: int, outputs: int) -> tuple[int, ...]:
        """Return one multiplier a candidate and output."""
        return (candidates, outputs)

    def duals(self, network: Network, inputs: Inputs, raw: Raw) -> tuple[Duals, Pull]:
        """Return the multipliers as they are."""
        return raw, lambda gradient: (None, gradient)

    def penalty(self, raw: Raw, floor: Float[Tensor, ""]) -> tuple[Float[Tensor, ""], Raw]:
        """Return nothing: every value is feasible."""
        return raw.new_zeros(()), torch.zeros_like(raw)

    def draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw unit normals."""
        return torch.randn(shape, generator=generator)


@dataclass(frozen=True)
class TiedMultipliers:
    """``−s·eʳ·∂ℓ(f(x_j), y_j)/∂f``: the slopes of a known loss under guessed targets, with one strength for all.

    Then the weights' equation says that the gradient of the training loss with weight decay vanishes. The strength is
    one over the weight decay and the number of examples; an attacker who does not know both starts from a guess.
    """

    loss: UserLoss
    targets: Tensor
    strength: float = 1.0

    def shape(self, candidates: int, outputs: int) -> tuple[int, ...]:
        """Return one strength for all, as a logarithm."""
        return (1,)

    def duals(self, network: Network, inputs: Inputs, raw: Raw) -> tuple[Duals, Pull]:
        """Return the slopes at the candidates as they are now; moving a candidate moves its slope."""

        def slopes(at: Tensor) -> Tensor:
            falls: Tensor = -len(at) * torch.func.grad(self.loss)(network(at), self.targets)
            return falls

        steep, pull = torch.func.vjp(slopes, inputs)[:2]
        strength = self.strength * raw.exp()
        return strength * steep, lambda gradient: (
            pull(strength * gradient)[0],
            (strength * gradient * steep).sum()[None],
        )

    def penalty(self, raw: Raw, floor: Float[Tensor, ""]) -> tuple[Float[Tensor, ""], Raw]:
        """Return nothing: every strength is feasible."""
        return raw.new_zeros(()), torch.zeros_like(raw)

    def draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Start with the strength as it was given."""
        return torch.zeros(shape)


def margin_directions(
    outputs: Float[Tensor, "candidate output"], labels: Int[Tensor, " candidate"]
) -> Float[Tensor, "candidate output"]:
    """Return the gradient of each candidate's margin by its outputs.

    >>> margin_directions(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([0])).tolist()
    [[1.0, -1.0, 0.0]]
    """
    if outputs.shape[1] == 1:
        return (2 * labels[:, None] - 1).to(outputs)
    classes = torch.arange(outputs.shape[1], device=outputs.device)
    own = classes == labels[:, None]
    rival = classes == outputs.masked_fill(own, -torch.inf).argmax(1)[:, None]
    return own.to(outputs) - rival.to(outputs)
