"""The change of the weights as a problem: which inputs and duals add up to it? Mathematics only, no loop."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.clues.evidence import Evidence, find_evidence
from exhume.clues.search_space import SearchSpace
from exhume.core.errors import ExhumeError
from exhume.gradient_sums.coordinates import move_into_space
from exhume.gradient_sums.curvature import GradientField
from exhume.gradient_sums.dense import DenseSums
from exhume.gradient_sums.natural_unit import natural_unit
from exhume.gradient_sums.residuals import leave_out
from exhume.gradient_sums.sums import gradient_sums
from exhume.optimise.box import Box
from exhume.optimise.sum_problem import Coordinates, SumProblem
from exhume.records import AttackerView, Weights

RawDuals = Float[Tensor, "*run point candidate output"]
"""Duals divided by their unit, of order one, so that one learning rate suits inputs and duals."""


@dataclass(frozen=True, kw_only=True)
class WeightChange(SumProblem):
    """``‖Δ − Σ_j Σ_c α_jc ∇θ f_c(x_j; θ)‖²`` plus a box penalty, as a function of coordinates and raw duals."""

    sharpness: tuple[float, float]
    """The β of smooth ReLUs at the beginning and at the end of a run."""
    dual_unit: float | Float[Tensor, "run 1 1 1"]
    points: int
    """Number of sets of weights at which gradients are taken."""

    @classmethod
    def of(
        cls,
        view: AttackerView,
        points: Sequence[Weights],
        space: SearchSpace,
        *,
        box_weight: float,
        sharpness: tuple[float, float],
        dual_unit: float = 1.0,
        balance: float = 0.0,
        evidence: Evidence | None = None,
        kept: float | None = None,
        known: Float[Tensor, "row unit"] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> "WeightChange":
        """Pose the problem of a view, with gradients taken at ``points``.

        ``evidence`` is the sum of gradients to explain (None: the best that the view holds), and ``kept`` the multiple
        of its reference to take out of it: for a weight change, the fraction of the initial weights that decay left.
        ``balance`` is the power of the first layer's metric, used where the space of its directions is known. With
        ``known`` effects of inputs on the first layer of a dense stack, orthonormal, the candidates explain what these
        leave of the first layer's change, and nothing else.
        """
        evidence = evidence or find_evidence(view)[0]
        sums = gradient_sums(view, points, dtype)
        # In the NTK parameterisation scales make weights move little and biases much; divided by its scale, every
        # parameter counts alike.
        target = [
            evidence.change(name, kept) / scale for name, scale in zip(sums.names, sums.parameter_scales, strict=True)
        ]
        if known is not None:
            assert isinstance(sums, DenseSums), "the effects of inputs are known in dense stacks only"
            sums = replace(sums, known=known.to(dtype))
            is_first = [name in sums.names_of_first for name in sums.names]
            target = [
                leave_out(known.to(one), one) if first else torch.zeros_like(one)
                for one, first in zip(target, is_first, strict=True)
            ]
        sums, target[0], metric = move_into_space(space, sums.unscaled(), target[0], balance)
        return cls(
            sums=sums,
            target=tuple(change.to(dtype) for change in target),
            space=space,
            box=Box.of(view, dtype),
            box_weight=box_weight,
            sharpness=sharpness,
            dual_unit=dual_unit,
            points=len(points),
            metric=None if metric is None else metric.to(dtype),
        )

    @classmethod
    def side_by_side(cls, each: Sequence["WeightChange"]) -> "WeightChange":
        """Return the problems of many runs as one: of one network many times, or of many networks of one shape.

        Coordinates and raw duals then have a first dimension of runs, and so does the value.

        Raises:
            ExhumeError: where the networks are not dense, or differ in shape.
        """
        if len({one.shape for one in each}) > 1:
            raise ExhumeError(
                "Only networks of one shape fit side by side; either all or none may have bounds, and either all or "
                "none may show the span of their inputs."
            )
        first = each[0]
        sums = type(first.sums).side_by_side([one.sums for one in each])
        units = first.target[0].new_tensor([float(one.dual_unit) for one in each])[:, None, None, None]
        if sums is first.sums:
            return replace(first, dual_unit=units)
        boxes = [one.box for one in each if one.box is not None]
        metrics = [one.metric for one in each if one.metric is not None]
        return replace(
            first,
            sums=sums,
            target=tuple(torch.stack(parts) for parts in zip(*(one.target for one in each), strict=True)),
            space=SearchSpace.side_by_side([one.space for one in each]),
            box=Box.side_by_side(boxes) if boxes else None,
            dual_unit=units,
            metric=torch.stack(metrics) if metrics else None,
            compact_target=None,
        )

    @property
    def shape(self) -> tuple[object, ...]:
        """What problems must have in common to fit side by side."""
        return (
            type(self.sums),
            tuple(change.shape for change in self.target),
            self.points,
            None if self.space.basis is None else self.space.basis.shape,
            self.space.constant is None,
            self.metric is None,
            self.box is None,
            self.sharpness,
        )

    def duals(self, raw_duals: RawDuals) -> RawDuals:
        """Return the duals that multiply gradients."""
        return self.dual_unit * raw_duals

    def objective(
        self, variables: tuple[Tensor, ...], elapsed: Float[Tensor, ""]
    ) -> tuple[Float[Tensor, "*run"], tuple[Tensor, ...]]:
        """Return the value at coordinates and raw duals, and its gradients; ``elapsed`` sets the sharpness.

        Variables with a first dimension of runs have one value per run, independent of the other runs.
        """
        free, raw_duals = variables
        duals, sharpness = self._duals_and_sharpness(raw_duals, elapsed)
        value, to_arguments, to_duals = self.squared_residual(free, duals, sharpness)
        to_free = self.to_free(to_arguments)
        if (outside := self.box_penalty(free)) is not None:
            value, to_free = value + outside[0], to_free + outside[1]
        return value, (to_free, self.dual_unit * to_duals.movedim(0, -3))

    def split_field(self, variables: tuple[Tensor, ...], elapsed: Float[Tensor, ""]) -> GradientField:
        """Return the gradients whose derivative decides on splits; see :mod:`exhume.optimise.splitting`."""
        free, raw_duals = variables
        return self.residual_field(free, *self._duals_and_sharpness(raw_duals, elapsed))

    def _duals_and_sharpness(self, raw_duals: RawDuals, elapsed: Float[Tensor, ""]) -> tuple[Tensor, Tensor]:
        """Return duals with the points first, as gradient sums have them, and the sharpness at this moment."""
        first, last = self.sharpness
        return self.duals(raw_duals).movedim(-3, 0), (first + (last - first) * elapsed).to(raw_duals)

    def confidence(self, free: Coordinates, raw_duals: RawDuals) -> Float[Tensor, " candidate"]:
        """Return how far each candidate's own contribution exceeds the residual, from 0 to 1.

        ``s/(s + r)`` with the squared norm ``s`` of the candidate's gradient sum and the squared residual ``r`` of all
        candidates: one that is weaker than the residual could as well be part of the error.
        """
        duals = self.duals(raw_duals)
        arguments = self.arguments(free)
        sharpness = torch.tensor(self.sharpness[1]).to(free)
        predicted = self.chunked_sums(arguments, duals, sharpness)[0]
        differences = [one - other for one, other in zip(predicted, self.target, strict=True)]
        residual = torch.stack([part.square().sum() for part in differences]).sum()
        strength = self.chunked_sums.squared_norms(arguments, duals, sharpness)
        return strength / (strength + residual)

    def with_natural_unit(self, free: Coordinates, raw_duals: RawDuals) -> "WeightChange":
        """Return the same problem with duals counted in the size they should have, given the gradients at ``free``."""
        _, candidates, outputs = raw_duals.shape
        unit = natural_unit(
            self.chunked_sums,
            self.arguments(free),
            points=self.points,
            outputs=outputs,
            target_square=self.size,
            gradients=candidates * outputs,
            sharpness=torch.tensor(self.sharpness[0]).to(free),
        )
        return self if unit is None else replace(self, dual_unit=unit)
