"""Sample splitting: replace a candidate by two with half its dual each, where that lowers the objective.

Let ``S = Σ_j s(x_j)`` be the sum that should explain a target ``T``, with the dual of a candidate inside ``s``. Half a
candidate at ``x + εu`` and half at ``x − εu`` leave the sum unchanged to first order, and change ``‖S − T‖²`` by
``ε² uᵀ∇²⟨S − T, s(x)⟩u``, with the residual ``S − T`` held constant. So the best direction is that of the lowest
curvature, and splitting helps where it is negative: the way out of a saddle at which one candidate stands for two
inputs (arXiv 2602.08723).

A search with splits starts with few candidates and doubles them. Shapes stay as they are, and with them checkpoints,
runs side by side and recorded steps: the places of later candidates are empty (their duals are zero and do not change)
until a split fills them. Replacing the candidates with the smallest duals instead, at a constant number, was measured
and loses: what they explained is then missing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.clues.search_space import SearchSpace
from exhume.gradient_sums.curvature import GradientField, lowest_curvature
from exhume.optimise.outcomes import Variables

Objective = Callable[[Variables, Float[Tensor, ""]], tuple[Tensor, Variables]]
SplitFields = Callable[[Variables, Float[Tensor, ""]], GradientField]
"""From variables with a dimension of runs, and the elapsed fraction of the steps, to the gradient of ``⟨S − T, s⟩`` by
coordinates, with ``S − T`` constant."""

DISTANCE = 0.05
"""How far each half moves: root mean square per input value. It is one step of ``WeightDifference``'s learning rate,
and a seventh of the distance between two digits of MNIST. With 0.02 as much is recovered, with 0.3 much less."""


class Halves(NamedTuple):
    """Which candidates are split."""

    sources: Int[Tensor, "run candidate"]
    """The candidate that each place continues; its own where nothing changes."""
    signs: Int[Tensor, "run candidate"]
    """1 and −1 for the two halves of a candidate, and 0 where nothing changes."""


@dataclass(frozen=True, kw_only=True)
class Splits:
    """The splits of a search, or of one of its stages. Variables are coordinates and duals, in this order."""

    steps: int
    """Number of steps of the stage."""
    at_steps: tuple[int, ...]
    """The numbers of steps of this stage after which candidates are split."""
    earlier: int
    """Number of splits in earlier stages."""
    births: Int[Tensor, " candidate"]
    """The number of the split that fills each place; 0: filled from the beginning."""
    groups: tuple[Int[Tensor, " _"], ...]
    """Places of candidates with the same label: both halves of a candidate have its label."""
    fields: SplitFields
    distance: float
    """Distance of each half from the candidate."""
    dual_axis: int
    """The dimension of candidates in the duals, from the last; in coordinates it is −2."""

    @classmethod
    def plan(
        cls,
        splits: int,
        *,
        steps: tuple[int, int, int],
        labels: Int[Tensor, " candidate"],
        fields: SplitFields,
        space: SearchSpace,
        dual_axis: int,
    ) -> "Splits":
        """Spread splits evenly over a search; ``steps`` are those before this stage, of this stage, and of all stages.

        Before its last ``n`` splits a search has ``1/2ⁿ`` of its candidates, per label and rounded up. A split that
        falls between two stages is made after the first step of the second.
        """
        before, own, whole = steps
        all_steps = [whole * number // (splits + 1) for number in range(1, splits + 1)]
        groups = tuple(torch.nonzero(labels == label)[:, 0] for label in sorted(set(labels.tolist())))
        births = torch.zeros_like(labels)
        for members in groups:
            for number in range(splits):
                births[members[-(-len(members) // 2 ** (splits - number)) :]] = number + 1
        return cls(
            steps=own,
            at_steps=tuple(max(step - before, 1) for step in all_steps if before <= step < before + own),
            earlier=sum(step < before for step in all_steps),
            births=births,
            groups=groups,
            fields=fields,
            distance=DISTANCE * space.unit * space.size**0.5,
            dual_axis=dual_axis,
        )

    def empty_places(self, start: Variables) -> Variables:
        """Return initial variables with zero duals in the places that are not filled yet."""
        coordinates, duals = start
        is_filled = self._by_candidate(self.births <= self.earlier, self.dual_axis, duals)
        return coordinates, torch.where(is_filled, duals, 0)

    def keep_empty(self, objective: Objective) -> Objective:
        """Return the objective with zero gradients in the places that are not filled yet."""
        ends = torch.tensor(self.at_steps, dtype=torch.float64, device=self.births.device) / self.steps

        def held(variables: Variables, elapsed: Float[Tensor, ""]) -> tuple[Tensor, Variables]:
            value, gradients = objective(variables, elapsed)
            is_filled = self.births <= self.earlier + (ends <= elapsed).sum()
            return value, tuple(
                torch.where(self._by_candidate(is_filled, axis, gradient), gradient, 0)
                for axis, gradient in zip((-2, self.dual_axis), gradients, strict=True)
            )

        return held

    def apply(
        self,
        variables: Variables,
        moments: tuple[Variables, Variables],
        is_active: Tensor,
        taken: int,
    ) -> None:
        """Split candidates of the active runs in place, after ``taken`` steps.

        Both halves inherit Adam's ``moments``, the means and the mean squares: zeros would make the next steps several
        times too long, since the bias of long runs is no longer corrected. Gradients by coordinates are proportional to
        the dual, so theirs are halved and quartered.
        """
        coordinates, duals = variables
        number = self.earlier + self.at_steps.index(taken) + 1
        field = self.fields(variables, torch.tensor(taken / self.steps, dtype=torch.float64, device=duals.device))
        generator = torch.Generator().manual_seed(number)
        directions, curvature = lowest_curvature(field, coordinates, distance=self.distance, generator=generator)
        halves = choose_halves(-curvature, self.births - number, self.groups)
        own = torch.arange(coordinates.shape[1], device=coordinates.device)
        sources = torch.where(is_active[:, None], halves.sources, own)
        signs = torch.where(is_active[:, None], halves.signs, 0).to(coordinates)
        shares = 1 - signs.abs() / 2
        means, squares = moments
        self._continue(coordinates, sources, -2)
        coordinates += signs[..., None] * self.distance * directions.take_along_dim(sources[..., None], 1)
        self._continue(duals, sources, self.dual_axis, shares)
        for moment, factors in ((means, shares), (squares, shares.square())):
            self._continue(moment[0], sources, -2, factors)
            self._continue(moment[1], sources, self.dual_axis)

    def _continue(self, rows: Tensor, sources: Tensor, axis: int, factors: Tensor | None = None) -> None:
        """Let each place continue its source, times a factor."""
        taken = rows.take_along_dim(self._by_candidate(sources, axis, rows), axis)
        rows.copy_(taken if factors is None else taken * self._by_candidate(factors, axis, rows))

    @staticmethod
    def _by_candidate(values: Tensor, axis: int, like: Tensor) -> Tensor:
        """Shape values per candidate, or per run and candidate, so that they broadcast with a variable."""
        shape = [1] * like.ndim
        shape[axis] = values.shape[-1]
        if values.ndim == 2:
            shape[0] = len(values)
        return values.reshape(shape)


def choose_halves(
    gains: Float[Tensor, "run candidate"],
    births: Int[Tensor, " candidate"],
    groups: Sequence[Int[Tensor, " _"]],
) -> Halves:
    """Choose the candidates with the largest gains, as many as a group has empty places, and split those that gain.

    Places with a negative birth are filled, those with birth 0 are filled now, and later ones stay empty. A place whose
    candidate would not gain starts where it was drawn, with a zero dual.

    >>> choose_halves(torch.tensor([[1.0, 3.0, 0.0]]), torch.tensor([-1, -1, 0]), [torch.arange(3)])
    Halves(sources=tensor([[0, 1, 1]]), signs=tensor([[ 0,  1, -1]]))
    """
    sources = torch.arange(gains.shape[1], device=gains.device).repeat(len(gains), 1)
    signs = torch.zeros_like(sources)
    for members in groups:
        filled, empty = members[births[members] < 0], members[births[members] == 0]
        gain, chosen = gains[:, filled].topk(len(empty))
        parents, places, is_split = filled[chosen], empty.expand(len(gains), -1), gain > 0
        sources.scatter_(1, places, torch.where(is_split, parents, places))
        signs.scatter_(1, parents, is_split.long())
        signs.scatter_(1, places, -is_split.long())
    return Halves(sources, signs)
