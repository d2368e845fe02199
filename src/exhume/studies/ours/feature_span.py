"""What the final weights of a convolutional network identify: the number of images, and the span of their features.

With weight decay the rows of the first dense layer above the convolutions are sums of the features of training images.
Its singular values then show the number of images, and its right singular vectors span their features, so the features
of a training image lie inside and those of another image do not. Nothing in the span tells an image from a mixture of
images: where the layers below are nearly linear between training images, mixtures lie inside as well.
"""

import functools
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.evaluation.calibration import calibrate
from exhume.models.convnet import ConvNet
from exhume.models.lower_layers import LowerLayers
from exhume.records import AttackerView, Weights
from exhume.studies.study import Study, StudyResult, StudyRun
from exhume.studies.tasks import draw, first_available
from exhume.training.recipes import weight_decay_recipe

LAYER = "hidden"
"""The first dense layer of a ConvNet with hidden units."""
MIXTURES = 200
"""Number of random mixtures of training images."""


@dataclass(frozen=True, kw_only=True)
class FeatureSpan:
    """Settings of the study."""

    cells: tuple[tuple[int, int], ...]
    """Training images and channels of the networks."""
    source: str = "mnist or digits"
    hidden: int = 200
    weight_decay: float = 3e-3
    steps: int = 4000
    held_out: int = 400
    seeds: int = 3


def measure(settings: FeatureSpan, run: StudyRun) -> StudyResult:
    """Train networks and compare training images, held-out images and mixtures with the span of the dense layer."""
    run.cells = len(settings.cells) * settings.seeds
    rows = [
        run.cell(f"{size}-{channels}-{seed}", functools.partial(_measure_network, settings, size, channels, seed, run))
        for size, channels in settings.cells
        for seed in range(run.seed, run.seed + settings.seeds)
    ]
    columns = {
        "size": "images",
        "channels": "channels",
        "estimate": "by the widest gap",
        "trained": "outside, training images at most",
        "held_out": "held-out images at least",
        "mixtures": "mixtures on average",
        "auc": "area under the ROC",
        "auc_null": "with the initial weights",
    }
    table = [tuple(f"{row[key]:.3g}" for key in columns) for row in rows]
    exact = sum(row["estimate"] == row["size"] for row in rows)
    worst, null = min(row["auc"] for row in rows), sum(row["auc_null"] for row in rows) / len(rows)
    return StudyResult(
        numbers={"rows": rows},
        table=(tuple(columns.values()), table),
        summary=f"The dense layer shows the number of images in {exact} of {len(rows)} networks. Features outside its "
        f"span tell training images from held-out ones with an area under the ROC of at least {worst:.2f} "
        f"({null:.2f} on average with the initial weights); mixtures of training images lie inside as well.",
    )


def _measure_network(settings: FeatureSpan, size: int, channels: int, seed: int, run: StudyRun) -> dict[str, Any]:
    source = first_available(settings.source)
    shrink = 2 if source == "mnist" else 1
    data = draw(source, "all", size=size, held_out=settings.held_out, seed=seed, shrink=shrink)
    model = ConvNet(channels=channels, depth=1, hidden=settings.hidden)
    recipe = weight_decay_recipe(
        loss="ce", weight_decay=settings.weight_decay, steps=settings.steps, model=model
    )  # fmt: skip
    victim = run.train(data, seed=seed, **recipe)
    view = victim.view()
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(MIXTURES, size, generator=generator).log().neg()  # uniform on the simplex, once they sum to 1
    mixed = torch.einsum("ms,s...->m...", weights / weights.sum(1, keepdim=True), data.train.inputs)
    groups = (data.train.inputs, data.holdout.inputs, mixed)
    estimate = widest_gap(_rows(view.final))
    inside, outside, mixtures = (shares_outside(view, view.final, view.final, images, size) for images in groups)
    assert view.initial is not None
    null = [shares_outside(view, view.initial, view.final, images, size) for images in groups[:2]]
    return {
        "size": size,
        "channels": channels,
        "seed": seed,
        "estimate": estimate,
        "trained": float(inside.max()),
        "held_out": float(outside.min()),
        "mixtures": float(mixtures.mean()),
        "auc": _auc(inside, outside),
        "auc_null": _auc(*null),
    }


def widest_gap(rows: Float[Tensor, "unit value"]) -> int:
    """Return the number of singular values before the largest ratio of neighbours, in the first half of them.

    >>> widest_gap(torch.diag(torch.tensor([3.0, 2.0, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3])))
    2
    """
    values = torch.linalg.svdvals(rows.double())
    values = values[: len(values) // 2 + 1].clamp(min=1e-300)
    return int((values[:-1] / values[1:]).argmax()) + 1


def shares_outside(
    view: AttackerView, spanning: Weights, below: Weights, images: Float[Tensor, "image ..."], rank: int
) -> Float[Tensor, " image"]:
    """Return the share of each image's features, by their norm, outside the span of the dense layer's rows.

    Args:
        view: the network.
        spanning: the weights whose dense layer spans.
        below: the weights of the layers that compute features.
        images: in pixel units.
        rank: dimension of the span, of the strongest directions.
    """
    trunk = LowerLayers(view.module(below).double(), LAYER)
    with torch.no_grad():
        features: Tensor = trunk(view.to_model(images.double())).flatten(1)
    features = torch.nn.functional.pad(features, (0, 1), value=1.0)
    basis = torch.linalg.svd(_rows(spanning).double(), full_matrices=False).Vh[:rank]
    left = features - features @ basis.T @ basis
    shares: Tensor = left.norm(dim=1) / features.norm(dim=1)
    return shares


def _rows(weights: Weights) -> Float[Tensor, "unit value"]:
    """Return the rows of the dense layer with their biases."""
    return torch.cat([weights[f"{LAYER}.weight"], weights[f"{LAYER}.bias"][:, None]], 1)


def _auc(inside: Float[Tensor, " image"], outside: Float[Tensor, " other"]) -> float:
    ranks = calibrate(inside, outside)
    assert ranks is not None
    return ranks.auc


STUDIES = (
    Study(
        name="feature-span",
        presets={
            "smoke": FeatureSpan(
                cells=((10, 4),), source="digits", hidden=64, steps=400, weight_decay=2e-2, held_out=50, seeds=1
            ),
            "cpu": FeatureSpan(cells=((10, 8), (20, 8), (40, 8), (20, 32))),
            "gpu": FeatureSpan(cells=((10, 8), (20, 8), (40, 8), (80, 8), (20, 32), (80, 32))),
        },
        measure=measure,
    ),
)  # fmt: skip
