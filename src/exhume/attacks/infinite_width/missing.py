"""Find where one more candidate would explain most of what the present candidates leave unexplained."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.infinite_width.embedding import JITTER, Embedding, norms, project_to_sphere, pull_from_sphere
from exhume.kernels import add_jitter
from exhume.optimise import Adam, Variables, minimise

NOTHING_NEW = 1e-9
"""Least fraction of a kernel value that the candidates leave unexplained; below it a place is one of theirs."""
MIXED_CANDIDATES = 3
"""Expected number of candidates in a mixture that a search for a missing input starts from."""
CLIMBING_RATE = 0.15
"""Learning rate of the search for a missing input, in units of an input's root mean square."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Missing:
    """The part of ``f`` that one more candidate would explain beyond the present ones.

    With the best duals, candidates leave ``r(z) = Σ_m α_m c(x_m, z)`` unexplained, a sum over the inputs they miss,
    where ``c`` is the kernel minus its projection onto theirs. A candidate at ``z`` explains ``r(z)²/c(z, z)`` of it.
    If one input is missing, the maximum is exactly there (Cauchy and Schwarz), however small its dual is. The plain
    residual has no such property: the dual of an input that the others predict well is small.
    """

    problem: Embedding
    free: Float[Tensor, "candidate value"]
    radius: float
    """Radius of the sphere to search."""

    @cached_property
    def _present(self) -> tuple[Tensor, Tensor, Tensor]:
        """The present inputs, the inverse of their kernel matrix, and their best duals."""
        inputs = self.problem.inputs(self.free).double()
        inverse = torch.linalg.inv(add_jitter(self.problem.kernel(inputs), JITTER))
        return inputs, inverse, inverse @ self.problem.answers(inputs.to(self.free))[0].double()

    def explained_at(
        self, places: Float[Tensor, "place value"]
    ) -> tuple[Float[Tensor, " place"], Float[Tensor, "place value"]]:
        """Return the squared norm that a candidate at each place would explain, and the gradient of its logarithm."""
        kernel = self.problem.kernel
        inputs, inverse, duals = self._present
        on_sphere = project_to_sphere(places, self.radius)
        cross, pull = kernel.with_vjp(on_sphere.double(), inputs)
        outputs, pull_outputs = self.problem.answers(on_sphere)
        residual = outputs.double() - cross @ duals
        projected = cross @ inverse
        diagonal = kernel.diagonal(on_sphere.double())
        new = (diagonal - (cross * projected).sum(1)).clamp(min=NOTHING_NEW * diagonal.max())
        explained = (residual.square().sum(1) / new).clamp(min=torch.finfo(new.dtype).tiny)
        by_residual = 2.0 * residual / (new * explained)[:, None]
        by_cross = 2.0 * projected / new[:, None] - by_residual @ duals.T
        gradient = pull_outputs(by_residual.to(outputs)).to(places) + pull(by_cross).to(places)
        return explained, pull_from_sphere(gradient, places, self.radius)

    def objective(self, variables: Variables, elapsed: Float[Tensor, ""]) -> tuple[Float[Tensor, ""], Variables]:
        """Return minus the sum of logarithms, in which every place moves independently, and its gradient."""
        explained, gradient = self.explained_at(variables[0])
        return -explained.log().sum(), (-gradient,)


def find_missing_input(
    problem: Embedding, free: Float[Tensor, "candidate value"], *, starts: int, steps: int, generator: torch.Generator
) -> tuple[Float[Tensor, "1 value"], float]:
    """Return the place where one more candidate would explain most, and the squared norm it would explain.

    The search climbs from many places. Half of them are noise, half lie near mixtures of a few candidates, since
    missing inputs resemble those already found.
    """
    inputs = problem.inputs(free)
    radius = problem.radius or float(norms(inputs).mean())
    noise = torch.randn(starts, free.shape[1], generator=generator)
    is_mixed = torch.rand(starts // 2, len(free), generator=generator) < MIXED_CANDIDATES / len(free)
    weights = is_mixed * torch.randn(is_mixed.shape, generator=generator)
    places = project_to_sphere(noise.to(free), radius)
    places[: len(weights)] = 0.2 * places[: len(weights)] + weights.to(free) @ inputs
    missing = Missing(problem=problem, free=free, radius=radius)
    climb = Adam(steps=steps, learning_rates=(CLIMBING_RATE * radius / free.shape[1] ** 0.5,))
    ends = minimise(missing.objective, (project_to_sphere(places, radius),), climb).variables[0]
    explained = missing.explained_at(ends)[0]
    best = int(explained.argmax())
    return project_to_sphere(ends[best : best + 1], radius), float(explained[best])
