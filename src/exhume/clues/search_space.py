"""The space in which candidates are searched: all inputs, or the subspace that the first layer shows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.clues.subspace import InputSubspace

LEAST_CONSTANT = 1e-9
"""Least norm of the constant's part of a basis. Below it, only inputs of a norm of 10⁹ and more fit the bias: it did
not move with the weights, and says nothing about the inputs."""


@dataclass(frozen=True)
class SearchSpace:
    """Inputs as ``coordinates @ basisᵀ``; without a basis the coordinates are the inputs.

    If the first layer has a bias, its change spans the vectors ``[x, 1]``, so the training inputs lie in an *affine*
    subspace that need not contain zero. The coordinate along its point nearest to zero is then the same for all inputs;
    it comes last and is not searched. This also removes the freedom to scale an input up and its dual down.
    """

    size: int
    """The number of values in one input."""
    basis: Float[Tensor, "*run value coordinate"] | None = None
    """Orthonormal columns."""
    constant: float | Float[Tensor, "run 1 1"] | None = None
    """The last coordinate of every input (per run); None where it is free like the others."""
    padding: int = 0
    """Number of further columns of the basis, all zero; see :meth:`aligned`."""
    unit: float = 1.0
    """Unit of steps and first guesses: 1 for the inputs of a network; for the features that a layer reads, the root
    mean square of the values of the point nearest to zero."""

    @classmethod
    def spanned_by(cls, subspace: InputSubspace, dtype: torch.dtype) -> "SearchSpace":
        """Return the space of all inputs that the change of a layer allows."""
        basis = subspace.basis
        if not subspace.layer.has_bias:
            return cls(len(basis), basis.to(dtype))
        inputs, ones = basis[:-1], basis[-1]
        if float(ones.norm()) < LEAST_CONSTANT:
            return cls(len(inputs), torch.linalg.qr(inputs).Q.to(dtype))
        # The combinations of the basis whose constant is 1 are one such combination plus the kernel of ``ones``.
        kernel = torch.linalg.svd(ones[None], full_matrices=True).Vh[1:].T
        directions = torch.linalg.qr(inputs @ kernel).Q
        nearest = inputs @ (ones / ones.square().sum())
        nearest = nearest - directions @ (directions.T @ nearest)
        distance = torch.linalg.norm(nearest)
        unit = 1.0 if subspace.layer.reads_input else float(distance) / len(inputs) ** 0.5
        whole = torch.cat([directions, (nearest / distance)[:, None]], 1).to(dtype)
        return cls(len(inputs), whole, float(distance), unit=unit)

    @classmethod
    def side_by_side(cls, spaces: Sequence["SearchSpace"]) -> "SearchSpace":
        """Stack the spaces of many runs along a first dimension; they must have the same shape."""
        first = spaces[0]
        if first.basis is None:
            return first
        bases = [space.basis for space in spaces if space.basis is not None]
        constant = None
        if first.constant is not None:
            constant = bases[0].new_tensor([float(space.constant or 0.0) for space in spaces])[:, None, None]
        return replace(first, basis=torch.stack(bases), constant=constant)

    def to(self, dtype: torch.dtype) -> "SearchSpace":
        """Return the same space with a basis of another dtype."""
        if self.basis is None:
            return self
        constant = self.constant.to(dtype) if isinstance(self.constant, Tensor) else self.constant
        return replace(self, basis=self.basis.to(dtype), constant=constant)

    def aligned(self, multiple: int) -> "SearchSpace":
        """Return the same space with zero columns in its basis, up to a multiple of so many coordinates.

        GPUs multiply matrices of other widths several times more slowly.
        """
        if self.basis is None:
            return self
        padding = -self.basis.shape[-1] % multiple
        return replace(self, basis=torch.nn.functional.pad(self.basis, (0, padding)), padding=self.padding + padding)

    @property
    def dimension(self) -> int:
        """The number of coordinates that are searched."""
        if self.basis is None:
            return self.size
        return self.basis.shape[-1] - self.padding - (self.constant is not None)

    @property
    def stretch(self) -> float:
        """How much longer a step along free coordinates is, where it moves every input value as much as in all."""
        return float((self.size / max(1, self.dimension)) ** 0.5)

    def project(self, inputs: Float[Tensor, "*run candidate value"]) -> Float[Tensor, "*run candidate free"]:
        """Return the free coordinates of the points nearest to ``inputs``."""
        return inputs if self.basis is None else inputs @ self.basis[..., : self.dimension]

    def coordinates(self, free: Float[Tensor, "*run candidate free"]) -> Float[Tensor, "*run candidate coordinate"]:
        """Return all coordinates, including the constant one."""
        if isinstance(self.constant, Tensor):
            free = torch.cat([free, self.constant.expand(-1, free.shape[-2], 1)], -1)
        elif self.constant is not None:
            free = torch.nn.functional.pad(free, (0, 1), value=self.constant)
        return torch.nn.functional.pad(free, (0, self.padding)) if self.padding else free

    def inputs(self, coordinates: Float[Tensor, "*run candidate coordinate"]) -> Float[Tensor, "*run candidate value"]:
        """Return flat inputs."""
        return coordinates if self.basis is None else coordinates @ self.basis.mT

    def pull(self, gradient: Float[Tensor, "*run candidate value"]) -> Float[Tensor, "*run candidate coordinate"]:
        """Convert a gradient with respect to inputs into one with respect to coordinates."""
        return gradient if self.basis is None else gradient @ self.basis

    def release(self, gradient: Float[Tensor, "*run candidate coordinate"]) -> Float[Tensor, "*run candidate free"]:
        """Return the part of a gradient that belongs to the free coordinates."""
        return gradient if gradient.shape[-1] == self.dimension else gradient[..., : self.dimension]
