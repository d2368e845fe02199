"""The stationarity equation as a minimisation problem. Mathematics only, no loop.

Weights at a point of maximal margin, to which a long training on a cross-entropy leads, and weights at a stationary
point of a training with weight decay are themselves sums of gradients at the training inputs:
``θ = Σ_j Σ_c d_jc ∇θ f_c(x_j; θ)``. The initial weights do not enter.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.stationarity.multipliers import Multipliers, Raw
from exhume.clues.search_space import SearchSpace
from exhume.clues.start_noise import split_first_layer
from exhume.gradient_sums.coordinates import move_into_space
from exhume.gradient_sums.curvature import GradientField
from exhume.gradient_sums.interface import Sharpness
from exhume.gradient_sums.natural_unit import natural_unit
from exhume.gradient_sums.sums import WeightedSums, gradient_sums
from exhume.optimise.box import Box
from exhume.optimise.sum_problem import Coordinates, SumProblem
from exhume.records import AttackerView

SHORT_SIZE = 0.25
"""Root mean square, in float16, of the target of the layer where it is largest: sums of such values stay in its range,
and small ones keep their digits."""


@dataclass(frozen=True, kw_only=True)
class StationarityProblem(SumProblem):
    """``‖θ − Σ_j Σ_c d_jc ∇θ f_c(x_j; θ)‖²`` plus a penalty on inputs outside the box and multipliers below a floor."""

    multipliers: Multipliers
    floor_weight: float = 5.0
    roughness: Float[Tensor, "coordinate coordinate"] | None = None
    """Weighted quadratic form of the roughness of an input in its coordinates; None: roughness costs nothing."""
    unit: float = 1.0
    """Unit of multipliers, so that multipliers of order one fit the weights."""

    @classmethod
    def of(
        cls,
        view: AttackerView,
        space: SearchSpace,
        multipliers: Multipliers,
        *,
        box_weight: float = 1.0,
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
            box_weight=box_weight,
            metric=None if metric is None else metric.to(dtype),
        )

    def duals(self, free: Coordinates, raw: Raw) -> Float[Tensor, "*run candidate output"]:
        """Return the factors of each candidate's gradients, per output."""
        return self.unit * self.multipliers.duals(self._network, self.arguments(free), raw)[0]

    def objective(
        self, free: Coordinates, raw: Raw, sharpness: Sharpness, floor: Float[Tensor, "*run"]
    ) -> tuple[Float[Tensor, "*run"], tuple[Tensor, Tensor]]:
        """Return the value at free coordinates and raw multipliers, and its gradients by both.

        Variables with a first dimension of runs have one sharpness, one floor and one value per run.
        """
        duals, pull = self.multipliers.duals(self._network, self.arguments(free), raw)
        value, to_arguments, to_duals = self.squared_residual(free, self.unit * duals[None], sharpness)
        by_duals, to_raw = pull(self.unit * to_duals[0])
        to_free = self.to_free(to_arguments if by_duals is None else to_arguments + by_duals)
        if (outside := self.box_penalty(free)) is not None:
            value, to_free = value + outside[0], to_free + outside[1]
        if self.roughness is not None:
            coordinates = self.space.coordinates(free)
            slope = coordinates @ self.roughness
            value = value + (slope * coordinates).sum((-2, -1))
            to_free = to_free + 2 * self.space.release(slope)
        shortfall, to_shortfall = self.multipliers.penalty(raw, floor)
        return value + self.floor_weight * shortfall, (to_free, to_raw + self.floor_weight * to_shortfall)

    def split_field(self, free: Coordinates, raw: Raw, sharpness: Sharpness) -> GradientField:
        """Return the gradients whose derivative decides on splits; see :mod:`exhume.optimise.splitting`."""
        return self.residual_field(free, self.duals(free, raw)[None], sharpness)

    def residual(self, free: Coordinates, raw: Raw, sharpness: Sharpness = None) -> Float[Tensor, "*run"]:
        """Return the unexplained fraction of the squared weights, without penalties and balance.

        At stationary points many inputs lie exactly on the edges of units, where the gradient may take any value
        between off and on; gates of finite sharpness explain such weights better than hard ones.
        """
        duals = self.duals(free, raw)[None]
        left = self.chunked_sums.squared_residual(self.target, self.arguments(free), duals, sharpness)[0]
        return left / self.size

    def with_natural_unit(self, free: Coordinates, candidates: int) -> "StationarityProblem":
        """Return the same problem with the unit of multipliers that gradients at ``free`` suggest.

        If ``n`` orthogonal gradients of norm ``g`` add up to the weights, each has the multiplier ``‖θ‖/(g·√n)``.
        """
        arguments = self.arguments(free)
        unit = natural_unit(
            self.chunked_sums,
            arguments,
            points=1,
            outputs=self._network(arguments).shape[1],
            target_square=self.size,
            gradients=candidates,
        )
        return self if unit is None else replace(self, unit=unit)

    def shortened(self) -> "StationarityProblem":
        """Return the same problem with all values between variables and gradients in float16."""
        size = max(float(part.double().square().mean().sqrt()) for part in self.target)
        return replace(self.rounded(torch.float16, rows=True), gain=SHORT_SIZE / size if size > 0 else 1.0)

    def _network(self, at: Tensor) -> Tensor:
        return self.chunked_sums.outputs(at)[0]
