"""Images of a network that begins with convolutions, from its final weights alone."""

from dataclasses import replace
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from exhume.attacks.attack import Attack
from exhume.attacks.stationarity.edges import UNITS_PER_DIMENSION, Edges
from exhume.attacks.stationarity.meeting_points import InputRange, find_meeting_points
from exhume.clues.search_space import SearchSpace
from exhume.clues.span import span_of_final_features
from exhume.clues.subspace import InputSubspace
from exhume.core.errors import Refusal
from exhume.core.run_context import RunContext
from exhume.core.settings import settings
from exhume.core.text import count_noun
from exhume.inversion.invert import Preimage
from exhume.inversion.isolation import has_spare_features
from exhume.inversion.rules import InversionRules
from exhume.inversion.through_trunk import box_of, invert_features, trunk_of
from exhume.models.passes import is_same_in_training
from exhume.optimise.box import Box
from exhume.records import AttackerView, Outcome, Reconstruction

UNPROVEN = "where edges meet is no proof for features"
"""Why nothing is certified: features that moved leave every direction of the span uncertain."""

FEATURES_ONLY = "They do not determine images, so the features are returned. Nothing is proven."
NO_RANGE = "The range of inputs is unknown, so no images were searched: give bounds. Nothing is proven."
"""The end of the message where pooling or few filters leave fewer independent features than pixels."""


@settings
class FeatureEdges(Attack):
    """Find images where the edges of a dense ReLU layer meet in the space of its features.

    Weight decay leaves sums of features in the rows of a dense layer above convolutions. Its singular values show the
    number of images, and its singular vectors span their features. The unit that switches at ``w·h + b = 0`` has its
    edge there, and a network at rest holds many edges exactly at the features ``h`` of each training image
    (:mod:`exhume.attacks.stationarity.meeting_points`). So the features are the points of the span where many edges
    meet. The image follows from its features where its range is known and the convolutions leave more independent
    features than pixels. Nothing is certified.
    """

    starts: PositiveInt = 64
    """Number of random images whose features are the first starting points of the search."""
    points: PositiveInt = 3
    """Largest number of reported points per training image. Beyond the images, edges meet between two of them."""
    feature_error: Annotated[float, Field(gt=0, lt=1)] = 0.03
    """Largest error of a feature, relative to the root mean square of its features. Independent errors of this size
    make 0.5 % of their norm, and residuals up to 1.1 % count as reproduced; where images came out, features lie up to
    0.6 % outside the span (``benchmarks/final_features.py``)."""
    reach: PositiveFloat = 10.0
    """Largest value of a feature, as a multiple of the largest that random images have."""
    descents: PositiveInt = 25
    """Largest number of descents in the search for the images that have given features."""

    def check(self, view: AttackerView) -> None:
        """Refuse networks without a dense ReLU layer with a bias above others, and weights that show no rank."""
        if view.linearised:
            raise Refusal("FeatureEdges attacks the network itself, and this view is linearised.")
        if not is_same_in_training(view.model, view.input_shape):
            raise Refusal("FeatureEdges needs features that do not depend on the batch or on chance.")
        _find_edges(span_of_final_features(view))

    def recover(self, view: AttackerView, context: RunContext) -> Reconstruction:
        """Find features where edges meet, and the images that have them."""
        subspace = span_of_final_features(view)
        layer, space = subspace.layer, SearchSpace.spanned_by(subspace, torch.float64)
        edges, features = _find_edges(subspace), self._features_of_noise(view, subspace, context)
        most = self.points * subspace.rank
        within = InputRange.of(_feature_range(features, self.reach), space).to(features.device)
        starts = space.project(features)
        met = find_meeting_points(edges, within, starts, context)
        met = met.take(met.choose(most))
        counts, inputs = met.counts.cpu(), within.inputs(met.points)
        count, share = len(inputs), 1 - space.dimension / counts.double()
        result = Reconstruction(
            inputs=inputs.float().cpu(),
            certified=torch.zeros(count, dtype=torch.bool),
            confidence=share.float(),
            outcome=Outcome.CONVERGED if count else Outcome.NOTHING_FOUND,
            message=_describe(subspace, count)
            + (f" {NO_RANGE if view.bounds is None else FEATURES_ONLY}" if count else ""),
            diagnostics=subspace.describe()
            | {
                "training_size_estimate": subspace.rank,
                "edges_met": counts.tolist(),
                "error_bounds": [None] * count,
                "doubts": [UNPROVEN] * count,
                "features_of": layer.name,
            },
        )
        if not count or view.bounds is None or not self._determine_images(view, subspace):
            return result
        images = invert_features(
            view, layer.name, view.final, result, context,
            descents=self.descents, as_released=True, unknown_error=self.feature_error,
        )  # fmt: skip
        reached = sum(outcome != Preimage.NOT_REACHED for outcome in images.diagnostics["preimages"])
        if images.inputs.shape[1:] != view.input_shape:
            return result
        return replace(
            images,
            confidence=share.float(),
            outcome=Outcome.CONVERGED,
            message=f"{_describe(subspace, count)} For {reached} of them an image was found that has these features. "
            "Nothing is proven.",
        )

    def _determine_images(self, view: AttackerView, subspace: InputSubspace) -> bool:
        """Return whether the layers below leave more independent features than an image and the span have unknowns."""
        trunk = trunk_of(view, subspace.layer.name, view.final)
        return has_spare_features(trunk, box_of(view).double(), subspace.rank, InversionRules())

    def _features_of_noise(
        self, view: AttackerView, subspace: InputSubspace, context: RunContext
    ) -> Float[Tensor, "start value"]:
        """Return the features of random images inside the range of inputs."""
        noise = torch.rand(self.starts, view.input_size, generator=context.generator, dtype=torch.float64)
        noise = noise.to(view.device)
        box = view.model_box()
        images = 2 * noise - 1 if box is None else box[0] + (box[1] - box[0]) * noise
        with torch.no_grad():
            return trunk_of(view, subspace.layer.name, view.final)(images.reshape(-1, *view.input_shape))


def _find_edges(subspace: InputSubspace) -> Edges:
    """Return the edges of the layer, or refuse."""
    layer = subspace.layer
    if not layer.has_bias:
        raise Refusal(f"FeatureEdges needs a bias in layer {layer.name!r}: without one all edges meet at zero.")
    edges = Edges.of_layer(layer, SearchSpace.spanned_by(subspace, torch.float64))
    if edges is None:
        raise Refusal(
            f"FeatureEdges needs more than {UNITS_PER_DIMENSION} different units in layer {layer.name!r} per training "
            f"input, whose number seems to be {subspace.rank}."
        )
    return edges


def _describe(subspace: InputSubspace, count: int) -> str:
    shows = f"The weights of layer {subspace.layer.name!r} show {count_noun(subspace.rank, 'training input')}."
    if not count:
        return (
            f"{shows} No point was found where the edges of enough units meet: the training may not be at rest, or the "
            "bounds of inputs may be wrong."
        )
    met = f"{shows} Its edges meet at the features of {count_noun(count, 'candidate')}"
    return f"{met}, more than there are inputs, so some are wrong." if count > subspace.rank else f"{met}."


def _feature_range(features: Float[Tensor, "start value"], reach: float) -> Box:
    """Return a generous range of features, from zero where none is negative."""
    largest = reach * features.abs().amax().expand(features.shape[1])
    return Box(torch.zeros_like(largest) if bool((features >= 0).all()) else -largest, largest)
