"""The edges of a network: where its hidden units switch, in coordinates of the searched space.

The *edge* of a unit is the set of inputs where its ReLU switches: a hyperplane for the first layer, and one within
every region of the layers below for the others. A ReLU network that gradient flow has brought to rest keeps many
training inputs exactly on edges, because the derivative of a ReLU jumps there and inputs on both sides hold the unit in
place. In ``n`` searched dimensions any ``n`` edges meet somewhere; a point on many more edges is no coincidence.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.clues.first_layer import FirstLayer
from exhume.clues.search_space import SearchSpace
from exhume.models.structure import dense_stack
from exhume.records import AttackerView

Points = Float[Tensor, "point free"]

WEAK = 0.01
"""Units below this fraction of the largest contribution are ignored: unused units may have their edge anywhere."""
SAME_EDGE = 1e-5
"""Edges whose normals and offsets have a cosine above one minus this value are the same."""
UNITS_PER_DIMENSION = 10
"""Units per searched dimension below which edges are not searched: too few meet at an input to find it."""
FLAT = 0.2
"""Slopes of a unit below this fraction of its usual slope do not count: where the layers below are mostly off, units
above them are near zero everywhere."""
SLOPES_AT = 64
"""Number of points at which the usual slopes of units are measured."""
FAR = 1e9
"""Distance of a point from an edge that does not count there."""


class LocalEdges(NamedTuple):
    """The edges around points, each as the hyperplane that it is in the region of the point."""

    distances: Float[Tensor, "point edge"]
    """Signed; ``FAR`` where an edge does not count."""
    normals: Float[Tensor, "point edge free"]
    """Vectors of unit length."""


@dataclass(frozen=True)
class Edges:
    """The edges of all hidden layers as functions of free coordinates."""

    weights: tuple[Float[Tensor, "_ _"], ...]
    """Per hidden layer; the first layer acts on free coordinates."""
    biases: tuple[Float[Tensor, " _"], ...]
    is_counted: tuple[Bool[Tensor, " _"], ...]
    """Which units contribute and are no copies of others."""
    least_slopes: tuple[Float[Tensor, " _"], ...] | None = None
    """Least slope per unit for its edge to count; see :meth:`with_slopes_at`."""

    @classmethod
    def of(cls, view: AttackerView, space: SearchSpace) -> "Edges | None":
        """Return the edges of a network; None where there are none, too few, or all of them meet at zero anyway."""
        stack = dense_stack(view.model)
        if stack is None or stack.activation != "relu" or stack.input_size != view.input_size:
            return None
        hidden, above = stack.layers[:-1], stack.layers[1:]
        if hidden[0].bias is None:
            return None
        weights = [layer.weight_scale * view.final[layer.weight].double() for layer in hidden]
        biases = [
            weight.new_zeros(len(weight)) if layer.bias is None else view.final[layer.bias].double()
            for weight, layer in zip(weights, hidden, strict=True)
        ]
        contributions = [
            weight.norm(dim=1) * view.final[layer.weight].double().norm(dim=0)
            for weight, layer in zip(weights, above, strict=True)
        ]
        weights[0], biases[0] = _inside(weights[0], biases[0], space)
        is_counted = tuple(
            (size > WEAK * size.max()) & (weight.norm(dim=1) > 0) & ~_are_repeated(weight, bias)
            for size, weight, bias in zip(contributions, weights, biases, strict=True)
        )
        edges = cls(tuple(weights), tuple(biases), is_counted)
        has_offsets = bool(biases[0][is_counted[0]].any())
        return edges if has_offsets and edges.count > UNITS_PER_DIMENSION * space.dimension else None

    @classmethod
    def of_layer(cls, layer: FirstLayer, space: SearchSpace) -> "Edges | None":
        """Return the edges of one dense layer with a bias, in the space of what it reads; None if there are too few.

        Weight decay keeps the weights behind a unit as large as those before it, so that these show which units
        contribute.
        """
        if not layer.has_bias:
            return None
        sizes = layer.after.norm(dim=1).square()
        weight, bias = _inside(layer.after[:, :-1], layer.after[:, -1], space)
        is_counted = (sizes > WEAK * sizes.max()) & (weight.norm(dim=1) > 0) & ~_are_repeated(weight, bias)
        edges = cls((weight,), (bias,), (is_counted,))
        return edges if edges.count > UNITS_PER_DIMENSION * space.dimension else None

    @property
    def count(self) -> int:
        """Number of edges that are counted."""
        return int(sum(counted.sum() for counted in self.is_counted))

    @property
    def dimension(self) -> int:
        """Number of searched dimensions."""
        return self.weights[0].shape[1]

    @property
    def multiplications(self) -> int:
        """Multiplications that the edges around one point take."""
        upper = sum(weight.numel() for weight in self.weights[1:])
        return self.dimension * (upper + self.count * self.dimension)

    def first_layer(self) -> "Edges":
        """Return the edges of the first layer alone."""
        return Edges(self.weights[:1], self.biases[:1], self.is_counted[:1])

    def with_slopes_at(self, points: Points) -> "Edges":
        """Return edges that count only where their units are not nearly flat, compared with these points."""
        slopes = [slopes.norm(dim=2).median(dim=0).values for _, slopes in self._layers_at(points[:SLOPES_AT])]
        return replace(self, least_slopes=tuple(FLAT * slope for slope in slopes))

    def upper_layers(self) -> "Edges":
        """Return the same edges without those of the first layer, which still decides where the others are."""
        return replace(self, is_counted=(torch.zeros_like(self.is_counted[0]), *self.is_counted[1:]))

    def around(self, points: Points) -> LocalEdges:
        """Return the edges around each point."""
        distances, normals = [], []
        for number, (values, slopes) in enumerate(self._layers_at(points)):
            counted = self.is_counted[number]
            length = slopes.norm(dim=2)
            distance = values / length.clamp(min=1e-300)
            if self.least_slopes is not None and number > 0:
                distance = torch.where(length < self.least_slopes[number], FAR, distance)
            distances.append(distance[:, counted])
            normals.append((slopes / length.clamp(min=1e-300)[..., None])[:, counted])
        return LocalEdges(torch.cat(distances, 1), torch.cat(normals, 1))

    def median_distance(self, points: Points) -> float:
        """Return the median distance between the points and the edges, the unit of all tolerances."""
        distances = self.around(points).distances.abs()
        return float(distances[distances < FAR].median())

    def _layers_at(self, points: Points) -> list[tuple[Float[Tensor, "point _"], Float[Tensor, "point _ free"]]]:
        """Return the pre-activations of every hidden layer, and their slopes by free coordinates."""
        values = points @ self.weights[0].T + self.biases[0]
        slopes = self.weights[0].expand(len(points), -1, -1)
        layers = [(values, slopes)]
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            slopes = weight @ (slopes * (values > 0)[..., None])
            values = values.relu() @ weight.T + bias
            layers.append((values, slopes))
        return layers


def _inside(
    weight: Float[Tensor, "unit value"], bias: Float[Tensor, " unit"], space: SearchSpace
) -> tuple[Float[Tensor, "unit free"], Float[Tensor, " unit"]]:
    """Return a layer as a function of free coordinates."""
    if space.basis is None:
        return weight, bias
    inside = weight @ space.basis.to(weight)
    if space.constant is not None:
        bias = bias + inside[:, space.dimension] * space.constant
    return inside[:, : space.dimension], bias


def _are_repeated(weight: Float[Tensor, "unit below"], bias: Float[Tensor, " unit"]) -> Bool[Tensor, " unit"]:
    """Return which units have the edge of an earlier one: units that learned the same weights share an edge."""
    both = torch.cat([weight, bias[:, None]], 1)
    both = both / both.norm(dim=1, keepdim=True).clamp(min=1e-300)
    is_repeated: Tensor = (1 - (both @ both.T).abs() < SAME_EDGE).triu(1).any(0)
    return is_repeated
