"""The span of the features of all inputs, as the change of a layer shows it."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class FeatureSpan:
    """A subspace that contains the features of every input, up to noise."""

    basis: Float[Tensor, "value rank"]
    """Orthonormal columns, in float64; a last value beyond the features stands for the constant 1."""
    strengths: Float[Tensor, " rank"]
    """The singular value of each column in the evidence."""
    noise: float
    """Standard deviation of the noise of an entry of the evidence."""

    def outside(self, features: Float[Tensor, "example feature"]) -> Float[Tensor, "example value"]:
        """Return the part of features, with their constant, that lies outside the span."""
        whole = self._with_constant(features)
        return whole - (whole @ self.basis) @ self.basis.T

    def deviation(self, features: Float[Tensor, "example feature"]) -> Float[Tensor, " example"]:
        """Return the standard deviation that the noise gives to each value outside the span, for features inside it.

        Features are combinations of the columns of the evidence, which the noise enters with their weights.
        """
        codes = self._with_constant(features) @ self.basis
        deviation: Tensor = self.noise * (codes / self.strengths).norm(dim=1)
        return deviation

    def _with_constant(self, features: Tensor) -> Tensor:
        features = features.to(self.basis)
        has_constant = len(self.basis) > features.shape[1]
        return torch.cat([features, torch.ones_like(features[:, :1])], dim=1) if has_constant else features
