"""The change of the weights as a problem: which inputs and duals add up to it? Mathematics only, no loop."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.clues.search_space import SearchSpace
from exhume.core.errors import ExhumeError
from exhume.gradient_sums.coordinates import UNIT_PROBES, moved_into
from exhume.gradient_sums.dense import DenseSums, Targets
from exhume.gradient_sums.residuals import compact
from exhume.gradient_sums.sums import ChunkedSums, GradientSums, gradient_sums, squared_residual
from exhume.optimise.box import Box
from exhume.records import AttackerView, Weights

Coordinates = Float[Tensor, "*run candidate free"]
RawDuals = Float[Tensor, "*run point candidate output"]
"""Duals over their unit, of order one, so that one learning rate suits inputs and duals."""


@dataclass(frozen=True, kw_only=True)
class WeightChange:
    """``‖Δ − Σ_j Σ_c α_jc ∇θ f_c(x_j; θ)‖²`` plus a soft box around the pixels, by coordinates of inputs and duals."""

    sums: GradientSums
    target: tuple[Tensor, ...]
    """The change of each parameter, the first layer's in coordinates where the sums are."""
    space: SearchSpace
    box: Box | None
    box_weight: float
    sharpness: tuple[float, float]
    """At the beginning and at the end of a run."""
    dual_unit: float | Float[Tensor, "run 1 1 1"]
    points: int
    """At how many sets of weights gradients are taken."""
    metric: Float[Tensor, "*run coordinate coordinate"] | None = None
    """How the first layer's residual is measured; see :func:`~exhume.gradient_sums.coordinates.balanced`."""
    thin: Targets | None = None
    """The target again, with thin factors for matrices where that saves work; see :meth:`compacted`."""
    at_once: int | None = None
    """How many candidates are worked on at a time; None: all. It changes what is in memory, not what comes out."""

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
        kept: float = 1.0,
        dtype: torch.dtype = torch.float32,
    ) -> "WeightChange":
        """Pose the problem of a view, with gradients taken at ``points``.

        ``kept`` is what weight decay left of the initial weights; the change is measured from there. ``balance`` is
        that of the first layer's directions, where the space is known that they span.
        """
        assert view.initial is not None
        sums = gradient_sums(view, points, dtype)
        # The difference of float32 weights is small; taken in float64 it loses nothing.
        target = [(view.final[name].double() - kept * view.initial[name].double()) for name in sums.names]
        metric = None
        if isinstance(sums, DenseSums):
            # In the NTK parameterisation scales make weights move little and biases much; the residual forgets them.
            target = [part / factor for part, factor in zip(target, sums.factors, strict=True)]
            sums, target[0], metric = moved_into(space, sums.unscaled(), target[0], balance)
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
        """
        sums = [one.sums for one in each if isinstance(one.sums, DenseSums)]
        if len(sums) < len(each):
            raise ExhumeError("Only dense networks fit side by side; run the attack on these one at a time.")
        if len({one.shape for one in each}) > 1:
            raise ExhumeError(
                "Only networks of one shape fit side by side, of which all have bounds or none, and all show the span "
                "of their inputs or none."
            )
        first = each[0]
        boxes = [one.box for one in each if one.box is not None]
        metrics = [one.metric for one in each if one.metric is not None]
        units = first.target[0].new_tensor([float(one.dual_unit) for one in each])[:, None, None, None]
        if all(one is sums[0] for one in sums):
            return replace(first, dual_unit=units)
        return replace(
            first,
            sums=DenseSums.side_by_side(sums),
            target=tuple(torch.stack(parts) for parts in zip(*(one.target for one in each), strict=True)),
            space=SearchSpace.side_by_side([one.space for one in each]),
            box=Box.side_by_side(boxes) if boxes else None,
            dual_unit=units,
            metric=torch.stack(metrics) if metrics else None,
            thin=None,
        )

    def compacted(self, candidates: int) -> "WeightChange":
        """Return the same problem, posed for so many candidates in the fewest multiplications.

        In float64, which is there to check, the target stays as it is.
        """
        if not isinstance(self.sums, DenseSums) or self.target[0].dtype == torch.float64:
            return self
        rows = candidates * self.points
        return replace(self, thin=tuple(compact(change, rows) for change in self.target))

    def rounded(self, dtype: torch.dtype) -> "WeightChange":
        """Return the same problem with coarser matrix products, where they are in closed form."""
        return replace(self, sums=self.sums.rounded(dtype)) if isinstance(self.sums, DenseSums) else self

    @property
    def shape(self) -> tuple[object, ...]:
        """What problems must have in common to stand side by side."""
        return (
            tuple(change.shape for change in self.target),
            self.sums.weights[0].shape if isinstance(self.sums, DenseSums) else None,
            None if self.space.basis is None else self.space.basis.shape,
            self.space.constant is None,
            self.metric is None,
            self.box is None,
            self.sharpness,
        )

    @property
    def size(self) -> float:
        """The squared norm of the change, what explaining nothing leaves over."""
        return float(sum(change.double().square().sum() for change in self.target))

    def duals(self, raw_duals: RawDuals) -> RawDuals:
        """Return the duals that multiply gradients."""
        return self.dual_unit * raw_duals

    def inputs(self, free: Coordinates) -> Float[Tensor, "candidate value"]:
        """Return flat network inputs."""
        return self.space.inputs(self.space.coordinates(free))

    def objective(
        self, variables: tuple[Tensor, ...], elapsed: Float[Tensor, ""]
    ) -> tuple[Float[Tensor, "*run"], tuple[Tensor, ...]]:
        """Return the value at coordinates and raw duals, and its gradients; ``elapsed`` sets the sharpness.

        Variables with a first dimension of runs have one value each, and no run knows of the others.
        """
        free, raw_duals = variables
        first, last = self.sharpness
        sharpness = (first + (last - first) * elapsed).to(free)
        coordinates = self.space.coordinates(free)
        at = self._arguments(coordinates)
        duals = self.duals(raw_duals).movedim(-3, 0)  # points first, as gradient sums have them
        target = self.target if self.thin is None or self.at_once is not None else self.thin
        value, to_arguments, to_duals = squared_residual(self._sums, target, at, duals, sharpness, self.metric)
        to_coordinates = to_arguments if at is coordinates else self.space.pull(to_arguments)
        if self.box is not None and self.box_weight > 0:
            penalty, to_box = self._box_penalty(coordinates)
            value, to_coordinates = value + penalty, to_coordinates + to_box
        return value, (self.space.release(to_coordinates), self.dual_unit * to_duals.movedim(0, -3))

    @property
    def _sums(self) -> GradientSums:
        return self.sums if self.at_once is None else ChunkedSums(self.sums, self.at_once)

    def _arguments(self, coordinates: Tensor) -> Tensor:
        """Return what the sums take: dense ones were moved into the space, others take inputs."""
        return coordinates if isinstance(self.sums, DenseSums) else self.space.inputs(coordinates)

    def _box_penalty(self, coordinates: Tensor) -> tuple[Tensor, Tensor]:
        assert self.box is not None
        weight = self.box_weight / self.space.size
        penalties, pulled = [], []
        for part in torch.split(coordinates, self.at_once or coordinates.shape[-2], -2):
            penalty, to_inputs = self.box.penalty(self.space.inputs(part), weight)
            penalties.append(penalty)
            pulled.append(self.space.pull(to_inputs))
        return torch.stack(penalties).sum(0), pulled[0] if len(pulled) == 1 else torch.cat(pulled, -2)

    def confidence(self, free: Coordinates, raw_duals: RawDuals) -> Float[Tensor, " candidate"]:
        """Return how far each candidate's own contribution stands out from what nobody explains.

        ``s/(s + r)`` with the squared norm ``s`` of the candidate's gradient sum and the squared residual ``r`` of all:
        a candidate weaker than the residual could as well be part of the error. Between 0 and 1, and from what an
        attacker has.
        """
        duals = self.duals(raw_duals)
        at = self._arguments(self.space.coordinates(free))
        sharpness = torch.tensor(self.sharpness[1]).to(free)
        predicted = self._sums(at, duals, sharpness)[0]
        differences = [one - other for one, other in zip(predicted, self.target, strict=True)]
        residual = torch.stack([part.square().sum() for part in differences]).sum()
        strength = self._strengths(at, duals, sharpness)
        return strength / (strength + residual)

    def with_natural_unit(self, free: Coordinates, raw_duals: RawDuals) -> "WeightChange":
        """Return the same problem with duals counted in the size they should have, given the gradients at ``free``.

        If ``n`` gradients of norm ``g`` at right angles add up to the change, then their duals are ``‖Δ‖/(g·√n)``.
        """
        some = min(len(free), UNIT_PROBES)
        points, _, outputs = raw_duals.shape
        duals = torch.zeros(points, some, outputs).to(raw_duals)
        for number in range(some):
            duals[0, number, number % outputs] = 1.0
        at = self._arguments(self.space.coordinates(free[:some]))
        squares = float(self._strengths(at, duals, torch.tensor(self.sharpness[0]).to(free)).mean())
        gradients = raw_duals.shape[1] * outputs
        return replace(self, dual_unit=(self.size / (squares * gradients)) ** 0.5) if squares > 0 else self

    def _strengths(self, at: Tensor, duals: Tensor, sharpness: Tensor) -> Float[Tensor, " candidate"]:
        """Return the squared norm of each candidate's own gradient sum."""
        if isinstance(self.sums, DenseSums):
            parts = zip(
                torch.split(at, self.at_once or len(at)), torch.split(duals, self.at_once or len(at), 1), strict=True
            )
            return torch.cat([self.sums.squared_norms(*part, sharpness) for part in parts])
        alone = [self.sums(at[j : j + 1], duals[:, j : j + 1], sharpness)[0] for j in range(len(at))]
        return torch.stack([torch.stack([part.square().sum() for part in parts]).sum() for parts in alone])
