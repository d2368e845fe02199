"""The interface of gradient sums ``Σ_j Σ_c α_jc ∇θ f_c(x_j; θ)``: values, pullbacks, and residuals against a target.

Attacks that explain weights by training examples compare such a sum with something the attacker can see. A sum comes
with its *pullback*, the map from a cotangent of the sum to gradients with respect to inputs and duals, so that a step
of an optimiser keeps no autograd graph.

A sum may join several sets of weights, its *points*: ``Σ_p Σ_j Σ_c α_pjc ∇θ f_c(x_j; θ_p)``, with the same inputs at
each point.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.core.errors import ExhumeError
from exhume.gradient_sums.residuals import LowRank

Sums = tuple[Tensor, ...]
Targets = tuple[Tensor | LowRank, ...]
"""What sums are compared with, one per parameter; matrices may be low-rank factors."""
Pullback = Callable[[Sums], tuple[Tensor, Tensor]]
"""From a cotangent of the sums to the gradients by inputs and by duals."""
Sharpness = Float[Tensor, ""] | Float[Tensor, " run"] | None
"""The β of softplus(βz)/β, which replaces a ReLU because it has a second derivative; None keeps the ReLU. Runs share
it, or each has its own."""
Inputs = Float[Tensor, "*run candidate value"]
Duals = Float[Tensor, "point *run candidate output"]
AnySums = TypeVar("AnySums", bound="GradientSums")


class GradientSums(ABC):
    """Gradient sums of a network at one or more points.

    A subclass implements the sum and the outputs. Everything else has a general implementation, which sums in closed
    form replace by a faster one.
    """

    names: tuple[str, ...]
    """The parameters, in the order of the sums."""

    @abstractmethod
    def __call__(self, inputs: Inputs, duals: Duals, sharpness: Sharpness = None) -> tuple[Sums, Pullback]:
        """Return one sum per parameter, and the pullback to flat ``inputs`` and to ``duals``."""

    @abstractmethod
    def outputs(self, inputs: Inputs) -> Duals:
        """Return the outputs of the network at every point, with exact ReLUs."""

    @property
    def takes_coordinates(self) -> bool:
        """Whether :meth:`within` can turn these sums into functions of coordinates of a subspace."""
        return False

    def within(self, basis: Float[Tensor, "value coordinate"]) -> "GradientSums":
        """Return the sums as functions of coordinates, where inputs are ``coordinates @ basisᵀ``."""
        raise NotImplementedError(f"{type(self).__name__} takes inputs only.")

    @property
    def parameter_scales(self) -> tuple[float, ...]:
        """The factor by which the network multiplies each parameter before use."""
        return (1.0,) * len(self.names)

    def unscaled(self) -> "GradientSums":
        """Return the sums of gradients by parameters as they are used, after multiplication by their scales."""
        return self

    def rounded(self, dtype: torch.dtype, *, rows: bool = False) -> "GradientSums":
        """Return the same sums with the factors of matrix products rounded to ``dtype``, where that is possible.

        With ``rows`` squared residuals round everything between their products, too.
        """
        return self

    def compact(self, target: Sums, candidates: int) -> Targets:
        """Return the target in the form in which :meth:`squared_residual` of so many candidates is cheapest."""
        return target

    @classmethod
    def side_by_side(cls: type[AnySums], each: Sequence[AnySums]) -> AnySums:
        """Return the sums of many runs as one, each with inputs, duals and weights of its own.

        Raises:
            ExhumeError: where sums take one run only.
        """
        raise ExhumeError("Only dense networks fit side by side; run the attack on these one at a time.")

    def squared_residual(
        self,
        target: Targets,
        inputs: Inputs,
        duals: Duals,
        sharpness: Sharpness = None,
        metric: Float[Tensor, "... in in"] | None = None,
        factors: Sequence[float] | None = None,
    ) -> tuple[Float[Tensor, "*run"], Inputs, Duals]:
        """Return ``‖target − sums‖²`` with its gradients by inputs and by duals.

        Args:
            target: one per parameter; runs share it, or each has its own.
            inputs: flat inputs.
            duals: the weights of the gradients.
            sharpness: of the smooth ReLUs; runs share it, or each has its own.
            metric: symmetric; the residual ``R`` of the first sum counts as ``⟨R, R·metric⟩``.
            factors: one per parameter; each sum is multiplied by its own before it is compared.
        """
        predicted, pullback = self(inputs, duals, sharpness)
        wanted = [one.to_matrix() if isinstance(one, LowRank) else one for one in target]
        residuals = [one - other for one, other in zip(scale_each(factors, predicted), wanted, strict=True)]
        weighted = residuals if metric is None else [residuals[0] @ metric, *residuals[1:]]
        runs = inputs.ndim - 2
        products = [(one * other).flatten(runs).sum(-1) for one, other in zip(residuals, weighted, strict=True)]
        to_inputs, to_duals = pullback(scale_each(factors, tuple(weighted)))
        return torch.stack(products).sum(0), 2 * to_inputs, 2 * to_duals

    def squared_norms(
        self,
        inputs: Float[Tensor, "candidate value"],
        duals: Float[Tensor, "point candidate output"],
        sharpness: Sharpness = None,
    ) -> Float[Tensor, " candidate"]:
        """Return the squared norm of each candidate's own contribution to the sums."""
        alone = [self(inputs[j : j + 1], duals[:, j : j + 1], sharpness)[0] for j in range(len(inputs))]
        return torch.stack([torch.stack([part.square().sum() for part in parts]).sum() for parts in alone])


def scale_each(factors: Sequence[float] | None, values: Sums) -> Sums:
    """Multiply the value of each parameter by its factor; None: leave all values as they are."""
    if factors is None:
        return values
    return tuple(factor * value for factor, value in zip(factors, values, strict=True))
