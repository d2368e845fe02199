"""What an infinitely wide network learned, as a sum of kernels, and where such a sum lacks a term.

In the kernel's own norm ``⟨f, k(x, ·)⟩ = f(x)``, so everything here needs a network's answers and none of its weights.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.kernels import InfiniteNTK, add_jitter, solve_duals
from exhume.optimise import Adam, Variables, minimise

Answers = Callable[
    [Float[Tensor, "candidate value"]],
    tuple[
        Float[Tensor, "candidate output"],
        Callable[[Float[Tensor, "candidate output"]], Float[Tensor, "candidate value"]],
    ],
]
"""What a trained network has learned to say about inputs, and the pull from a cotangent of that to the inputs."""

BARELY = 1e-12
"""A jitter that lets candidates in one place be solved for, and changes nothing else in float64."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Embedding:
    """``‖f − Σ_j α_j k(x_j, ·)‖² − ‖f‖²`` for a network ``f = Σ_i α_i k(x_i, ·)`` that can only be asked.

    The distance of two embeddings is ``Σ α_j α_l k(x_j, x_l) − 2 Σ α_j f(x_j)`` but for a constant. On a sphere the
    kernel embeds measures injectively, so that with as many candidates as training inputs only the training set itself
    has distance zero.
    """

    kernel: InfiniteNTK
    answers: Answers
    radius: float | None = None
    """The length of every input, where inputs are known to lie on a sphere."""
    dual_unit: float = 1.0

    def inputs(self, free: Float[Tensor, "candidate value"]) -> Float[Tensor, "candidate value"]:
        """Return candidates, on the sphere where there is one."""
        return free if self.radius is None else on_sphere(free, self.radius)

    def objective(self, variables: Variables, elapsed: Float[Tensor, ""]) -> tuple[Float[Tensor, ""], Variables]:
        """Return the value at free inputs and duals in their unit, and its gradients."""
        free, raw = variables
        inputs, duals = self.inputs(free), self.dual_unit * raw
        table, pull = self.kernel.with_vjp(inputs)
        said, pull_said = self.answers(inputs)
        own = table @ duals
        value = (duals * own).sum() - 2.0 * (duals * said).sum()
        by_inputs = pull(duals @ duals.T) - 2.0 * pull_said(duals)
        if self.radius is not None:
            by_inputs = along_sphere(by_inputs, free, self.radius)
        return value, (by_inputs, 2.0 * self.dual_unit * (own - said))

    def best_duals(self, free: Float[Tensor, "candidate value"]) -> Float[Tensor, "candidate output"]:
        """Return the duals, in their unit, that fit best at free inputs, in closed form."""
        inputs = self.inputs(free)
        said = self.answers(inputs)[0].double()
        return (solve_duals(self.kernel(inputs.double()), said, BARELY) / self.dual_unit).to(free)


def on_sphere(free: Float[Tensor, "candidate value"], radius: float) -> Float[Tensor, "candidate value"]:
    """Return inputs of one length in the directions of free ones."""
    return radius * free / _length(free)


def along_sphere(
    gradient: Float[Tensor, "candidate value"], free: Float[Tensor, "candidate value"], radius: float
) -> Float[Tensor, "candidate value"]:
    """Pull a gradient by inputs on a sphere back to free ones."""
    length = _length(free)
    along = free / length
    return radius / length * (gradient - along * (along * gradient).sum(1, keepdim=True))


def _length(free: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(free, dim=1, keepdim=True)
    return length.clamp(min=1e-12)


@dataclass(frozen=True, kw_only=True, eq=False)
class Missing:
    """How much of ``f`` one more candidate would explain beyond those there are.

    With the best duals, what candidates leave unexplained is ``r(z) = Σ_m α_m c(x_m, z)`` over the inputs they miss,
    where ``c`` is the kernel less its projection onto theirs. A candidate at ``z`` takes ``r(z)²/c(z, z)`` of it. If
    one input is missing that is largest exactly there (Cauchy and Schwarz), however little the input says: its dual is
    small where the others predict it well, and the plain residual then points anywhere.
    """

    problem: Embedding
    free: Float[Tensor, "candidate value"]
    radius: float
    """Of the sphere to look on."""

    @cached_property
    def _there(self) -> tuple[Tensor, Tensor, Tensor]:
        inputs = self.problem.inputs(self.free).double()
        inverse = torch.linalg.inv(add_jitter(self.problem.kernel(inputs), BARELY))
        return inputs, inverse, inverse @ self.problem.answers(inputs.to(self.free))[0].double()

    def explained_at(
        self, places: Float[Tensor, "place value"]
    ) -> tuple[Float[Tensor, " place"], Float[Tensor, "place value"]]:
        """Return what a candidate at each place would explain, and the gradient of its logarithm by the place."""
        kernel = self.problem.kernel
        inputs, inverse, duals = self._there
        asked = on_sphere(places, self.radius)
        table, pull = kernel.with_vjp(asked.double(), inputs)
        said, pull_said = self.problem.answers(asked)
        left = said.double() - table @ duals
        projected = table @ inverse
        diagonal = kernel.diagonal(asked.double())
        new = (diagonal - (table * projected).sum(1)).clamp(min=NOTHING_NEW * diagonal.max())
        explained = (left.square().sum(1) / new).clamp(min=torch.finfo(new.dtype).tiny)
        by_left = 2.0 * left / (new * explained)[:, None]
        by_table = 2.0 * projected / new[:, None] - by_left @ duals.T
        gradient = pull_said(by_left.to(said)).to(places) + pull(by_table).to(places)
        return explained, along_sphere(gradient, places, self.radius)

    def objective(self, variables: Variables, elapsed: Float[Tensor, ""]) -> tuple[Float[Tensor, ""], Variables]:
        """Return minus the sum of logarithms, so that every place climbs by itself, and its gradient."""
        explained, gradient = self.explained_at(variables[0])
        return -explained.log().sum(), (-gradient,)


NOTHING_NEW = 1e-9
"""A place whose kernel the candidates explain but for this share is one of theirs."""


def most_missing(
    problem: Embedding, free: Float[Tensor, "candidate value"], *, starts: int, steps: int, generator: torch.Generator
) -> tuple[Float[Tensor, "1 value"], float]:
    """Climb from many places and return the one where a candidate would explain most, and how much that is.

    Half of the starts are noise, half near mixtures of a few candidates: missing inputs resemble those already found.
    """
    inputs = problem.inputs(free)
    radius = problem.radius or float(_length(inputs).mean())
    places = torch.randn(starts, free.shape[1], generator=generator)
    few = torch.rand(starts // 2, len(free), generator=generator) < MIXED / len(free)
    weights = few * torch.randn(few.shape, generator=generator)
    places = on_sphere(places.to(free), radius)
    places[: len(few)] = 0.2 * places[: len(few)] + weights.to(free) @ inputs
    missing = Missing(problem=problem, free=free, radius=radius)
    climb = Adam(steps=steps, learning_rates=(CLIMBING * radius / free.shape[1] ** 0.5,))
    ends = minimise(missing.objective, (on_sphere(places, radius),), climb).variables[0]
    explained = missing.explained_at(ends)[0]
    best = int(explained.argmax())
    return on_sphere(ends[best : best + 1], radius), float(explained[best])


MIXED = 3
"""How many candidates a mixture has, about."""
CLIMBING = 0.15
"""The learning rate of climbing, in units of an input's root mean square."""
