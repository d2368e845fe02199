"""Distilled inputs as variables of an optimisation: objective, search space, and distance to the training inputs."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.core.errors import ExhumeError
from exhume.distillation.losses import DistillationLoss
from exhume.kernels import InfiniteNTK
from exhume.optimise import Variables

MOST_PUSHES = 100
"""Attempts to move inputs away from training inputs before giving up."""


@dataclass(frozen=True, kw_only=True, eq=False)
class InducingPoints:
    """A loss as a function of distilled inputs, and of their targets where these are learned."""

    kernel: InfiniteNTK
    loss: DistillationLoss
    examples: Float[Tensor, "example value"]
    targets: Float[Tensor, "distilled output"]
    size: int | None = None
    """Number of values per input, where examples are coordinates in a smaller space."""
    is_free: Float[Tensor, "distilled value"] | None = None
    """1 where a value may change, 0 where it is fixed noise; None: all may change."""
    min_distance: float | None = None

    @cached_property
    def squares(self) -> Float[Tensor, " example"]:
        """The squared lengths of the examples."""
        return self.examples.square().sum(1)

    @cached_property
    def distilled_and_examples(self) -> Float[Tensor, "all value"]:
        """A buffer with room for the distilled inputs above the examples, so that one pass computes both kernels."""
        return torch.cat([torch.zeros_like(self.examples[:1]).expand(len(self.targets), -1), self.examples])

    def objective(self, variables: Variables, elapsed: Float[Tensor, ""]) -> tuple[Float[Tensor, ""], Variables]:
        """Return the value at inputs (and targets), and its gradients."""
        inputs = variables[0]
        count = len(inputs)
        targets = variables[1] if len(variables) > 1 else self.targets
        self.distilled_and_examples[:count] = inputs
        squares = torch.cat([inputs.square().sum(1), self.squares])
        table, vjp = self.kernel.with_vjp(inputs, self.distilled_and_examples, squares, self.size)
        slopes = self.loss(table[:, :count].double(), table[:, count:], targets)
        within = (slopes.by_within + slopes.by_within.T).to(inputs)  # an input occurs in a row and in a column
        gradient = vjp(torch.cat([within, slopes.by_across], 1))
        value = slopes.value
        if self.min_distance:
            penalty, penalty_gradient = self._penalise_nearness(inputs, self.min_distance)
            value, gradient = value + penalty, gradient + penalty_gradient
        if self.is_free is not None:
            gradient = gradient * self.is_free
        return value, (gradient, slopes.by_targets)[: len(variables)]

    def _penalise_nearness(self, inputs: Tensor, least: float) -> tuple[Tensor, Tensor]:
        """Return a penalty on inputs nearer than ``least`` to an example, and its gradient."""
        nearest = (self.squares - 2.0 * inputs @ self.examples.T).argmin(1)
        away = inputs - self.examples[nearest]
        distance = away.norm(dim=1, keepdim=True).clamp(min=1e-6)
        lacking = (1.0 - distance / least).clamp(min=0.0)
        gradient = -2.0 * self.loss.scale / least * lacking * (away / distance)
        return self.loss.scale * lacking.square().sum(), gradient


def span_axes(inputs: Float[Tensor, "n value"]) -> Float[Tensor, "axis value"]:
    """Return orthonormal axes of a space that contains all inputs, as many as there are inputs or values.

    >>> span_axes(torch.tensor([[0.0, 2.0, 0.0]])).abs()
    tensor([[0., 1., 0.]])
    """
    axes: Tensor = torch.linalg.qr(inputs.T).Q.T
    return axes


def push_away(
    inputs: Float[Tensor, "distilled value"],
    examples: Float[Tensor, "example value"],
    least: float,
    is_free: Float[Tensor, "distilled value"] | None = None,
) -> Float[Tensor, "distilled value"]:
    """Move inputs straight away from examples until none is nearer than ``least``.

    The penalty of the objective keeps this distance only approximately.

    Raises:
        ExhumeError: when there is no such position.

    >>> push_away(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 0.0]]), 2.0).norm() >= 2.0
    tensor(True)
    """
    inputs = inputs.clone()
    for _ in range(MOST_PUSHES):
        distance, nearest = torch.cdist(inputs.double(), examples.double()).min(1)
        if bool((distance >= least).all()):
            return inputs
        away = inputs - examples[nearest]
        away = away if is_free is None else away * is_free
        length = away.norm(dim=1, keepdim=True).clamp(min=1e-6)
        # Slightly further than needed, because the next example may be near in that direction.
        lacking = (1.001 * least - distance).clamp(min=0.0)[:, None].to(inputs)
        inputs = inputs + lacking * away / length
    raise ExhumeError(f"No distilled set keeps a distance of {least:g} from every training input; ask for less.")
