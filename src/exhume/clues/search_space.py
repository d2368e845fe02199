"""Where candidates are looked for: among all inputs, or in the subspace that the first layer gives away."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.clues.subspace import InputSubspace


@dataclass(frozen=True)
class SearchSpace:
    """Inputs as ``coordinates @ basisᵀ``; the identity where there is no basis.

    With a bias in the first layer its change spans the vectors ``[x, 1]``, so the training inputs fill an *affine*
    subspace that need not hold zero. Its last coordinate, along the point nearest to zero, is then the same for all of
    them and is not searched. This also takes away the freedom to scale an input up and its dual down.
    """

    size: int
    """The number of values in one input."""
    basis: Float[Tensor, "*run value coordinate"] | None = None
    """Orthonormal columns."""
    constant: float | Float[Tensor, "run 1 1"] | None = None
    """The last coordinate of every input (of a run); None where it is free like the others."""

    @classmethod
    def spanned_by(cls, subspace: InputSubspace, dtype: torch.dtype) -> "SearchSpace":
        """Return the space of all inputs that a layer's change allows."""
        basis = subspace.basis
        if not subspace.layer.has_bias:
            return cls(len(basis), basis.to(dtype))
        inputs, ones = basis[:-1], basis[-1]
        # Combinations of the basis whose constant is 1 are one of them plus the kernel of ``ones``.
        kernel = torch.linalg.svd(ones[None], full_matrices=True).Vh[1:].T
        directions = torch.linalg.qr(inputs @ kernel).Q
        nearest = inputs @ (ones / ones.square().sum())
        nearest = nearest - directions @ (directions.T @ nearest)
        distance = torch.linalg.norm(nearest)
        return cls(len(inputs), torch.cat([directions, (nearest / distance)[:, None]], 1).to(dtype), float(distance))

    @classmethod
    def side_by_side(cls, each: Sequence["SearchSpace"]) -> "SearchSpace":
        """Return the spaces of many runs as one, each run in its own; they must have one shape."""
        first = each[0]
        if first.basis is None:
            return first
        bases = [one.basis for one in each if one.basis is not None]
        constant = None
        if first.constant is not None:
            constant = bases[0].new_tensor([float(one.constant or 0.0) for one in each])[:, None, None]
        return cls(first.size, torch.stack(bases), constant)

    @property
    def dimension(self) -> int:
        """How many coordinates are searched."""
        return self.size if self.basis is None else self.basis.shape[-1] - (self.constant is not None)

    def project(self, inputs: Float[Tensor, "*run candidate value"]) -> Float[Tensor, "*run candidate free"]:
        """Return the free coordinates of the points nearest to ``inputs``."""
        return inputs if self.basis is None else inputs @ self.basis[..., : self.dimension]

    def coordinates(self, free: Float[Tensor, "*run candidate free"]) -> Float[Tensor, "*run candidate coordinate"]:
        """Return all coordinates, those included that are not searched."""
        if self.constant is None:
            return free
        if isinstance(self.constant, Tensor):
            return torch.cat([free, self.constant.expand(-1, free.shape[-2], 1)], -1)
        return torch.nn.functional.pad(free, (0, 1), value=self.constant)

    def inputs(self, coordinates: Float[Tensor, "*run candidate coordinate"]) -> Float[Tensor, "*run candidate value"]:
        """Return flat inputs."""
        return coordinates if self.basis is None else coordinates @ self.basis.mT

    def pull(self, gradient: Float[Tensor, "*run candidate value"]) -> Float[Tensor, "*run candidate coordinate"]:
        """Turn a gradient by inputs into one by coordinates."""
        return gradient if self.basis is None else gradient @ self.basis

    def release(self, gradient: Float[Tensor, "*run candidate coordinate"]) -> Float[Tensor, "*run candidate free"]:
        """Keep the part of a gradient that belongs to free coordinates."""
        return gradient[..., : self.dimension] if self.constant is not None else gradient
