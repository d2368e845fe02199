"""The stationarity equation as a minimisation problem. Mathematics only, no loop.

Weights at a point of maximal margin, to which a long training on a cross-entropy leads, and weights at a stationary
point of a training with weight decay are themselves sums of gradients at the training inputs:
``θ = Σ_j Σ_c d_jc ∇θ f_c(x_j; θ)``. The initial weights do not enter.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.stationarity.multipliers import Multipliers
from exhume.clues.search_space import SearchSpace
from exhume.clues.start_noise import split_first_layer
from exhume.gradient_sums.coordinates import move_into_space
from exhume.gradient_sums.interface import GradientSums, Sharpness, Sums
from exhume.gradient_sums.natural_unit import natural_unit
from exhume.gradient_sums.sums import WeightedSums, gradient_sums
from exhume.optimise.box import Box
from exhume.records import AttackerView

Free = Float[Tensor, "candidate free"]


@dataclass(frozen=True, kw_only=True)
class StationarityProblem:
    """``‖θ − Σ_j Σ_c d_jc ∇θ f_c(x_j; θ)‖²`` plus a penalty on inputs outside the box and multipliers below a floor."""

    sums: GradientSums
    target: Sums
    """The final weights; those of the first layer in coordinates of the space where the sums are."""
    space: SearchSpace
    multipliers: Multipliers
    box: Box | None
    box_weight: float = 1.0
    floor_weight: float = 5.0
    unit: float = 1.0
    """Unit of multipliers, so that multipliers of order one fit the weights."""
    metric: Float[Tensor, "coordinate coordinate"] | None = None
    """Metric of the first layer's residual; see :func:`~exhume.gradient_sums.coordinates.balanced_metric`."""

    @classmethod
    def of(
        cls,
        view: AttackerView,
        space: SearchSpace,
        multipliers: Multipliers,
        *,
        balance: float = 0.0,
        upper_layers: float = 1.0,
        dtype: torch.dtype = torch.float32,
    ) -> "StationarityProblem":
        """Return the problem of a view's final weights; the initial weights are not used.

        ``upper_layers`` is the weight of squared residuals above the first layer.
        """
        sums = gradient_sums(view, [view.final], dtype, gates_only=True)
        target = [view.final[name].double() for name in sums.names]
        sums, target[0], metric = move_into_space(space, sums, target[0], balance)
        if upper_layers != 1.0:
            first, _ = split_first_layer(sums.names)
            sums = WeightedSums(sums, tuple(1.0 if name in first else upper_layers**0.5 for name in sums.names))
            target = list(sums.weight(tuple(target)))
        return cls(
            sums=sums,
            target=tuple(weight.to(dtype) for weight in target),
            space=space,
            multipliers=multipliers,
            box=Box.of(view, dtype),
            metric=None if metric is None else metric.to(dtype),
        )

    @property
    def size(self) -> float:
        """The squared norm of the weights in the objective: its value when nothing is explained."""
        return float(sum(weight.double().square().sum() for weight in self.target))

    def inputs(self, free: Free) -> Float[Tensor, "candidate value"]:
        """Return flat network inputs."""
        return self.space.inputs(self.space.coordinates(free))

    def duals(self, free: Free, raw: Tensor) -> Float[Tensor, "candidate output"]:
        """Return the factors of each candidate's gradients, per output."""
        return self.unit * self.multipliers.duals(self._network, self._arguments(free), raw)[0]

    def objective(
        self, free: Free, raw: Tensor, sharpness: Sharpness, floor: Float[Tensor, ""]
    ) -> tuple[Float[Tensor, ""], tuple[Tensor, Tensor]]:
        """Return the value at free coordinates and raw multipliers, and its gradients by both."""
        arguments = self._arguments(free)
        duals, pull = self.multipliers.duals(self._network, arguments, raw)
        value, to_arguments, to_duals = self.sums.squared_residual(
            self.target, arguments, self.unit * duals[None], sharpness, self.metric
        )
        by_duals, to_raw = pull(self.unit * to_duals[0])
        to_arguments = to_arguments if by_duals is None else to_arguments + by_duals
        to_free = self.space.release(to_arguments if self.sums.takes_coordinates else self.space.pull(to_arguments))
        if self.box is not None and self.box_weight > 0:
            penalty, to_inputs = self.box.penalty(self.inputs(free), self.box_weight)
            value, to_free = value + penalty, to_free + self.space.release(self.space.pull(to_inputs))
        shortfall, to_shortfall = self.multipliers.penalty(raw, floor)
        return value + self.floor_weight * shortfall, (to_free, to_raw + self.floor_weight * to_shortfall)

    def residual(self, free: Free, raw: Tensor, sharpness: Sharpness = None) -> Float[Tensor, ""]:
        """Return the unexplained fraction of the squared weights, without penalties and balance.

        At stationary points many inputs lie exactly on the edges of units, where the gradient may take any value
        between off and on; gates of finite sharpness explain such weights better than hard ones.
        """
        duals = self.duals(free, raw)[None]
        left = self.sums.squared_residual(self.target, self._arguments(free), duals, sharpness, None)[0]
        return left / self.size

    def with_natural_unit(self, free: Free, candidates: int) -> "StationarityProblem":
        """Return the same problem with the unit of multipliers that gradients at ``free`` suggest.

        If ``n`` orthogonal gradients of norm ``g`` add up to the weights, each has the multiplier ``‖θ‖/(g·√n)``.
        """
        arguments = self._arguments(free)
        unit = natural_unit(
            self.sums,
            arguments,
            points=1,
            outputs=self._network(arguments).shape[1],
            target_square=self.size,
            gradients=candidates,
        )
        return self if unit is None else replace(self, unit=unit)

    def _network(self, at: Tensor) -> Tensor:
        return self.sums.outputs(at)[0]

    def _arguments(self, free: Tensor) -> Tensor:
        """Return the arguments of the sums: coordinates for dense sums, inputs for others."""
        coordinates = self.space.coordinates(free)
        return coordinates if self.sums.takes_coordinates else self.space.inputs(coordinates)
