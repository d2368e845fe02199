"""What studies measure on reconstructions and networks; counts on training images have a count on held-out ones."""

import statistics
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from exhume.core.devices import resolve_device
from exhume.evaluation.calibration import calibrate
from exhume.evaluation.comparison import relative_distances
from exhume.evaluation.distances import UnitScale, cross_correlations, ssim
from exhume.kernels import InfiniteNTK, KernelRegression
from exhume.records import AttackerView, Calibration, Dataset, Evaluation, Reconstruction, Split
from exhume.records.comparison import EXACT, SIMILAR
from exhume.training.losses import LOSSES
from exhume.training.prediction import accuracy, classify

FPR = 0.01
"""False-positive rate at which training images count as recovered."""


def evaluation_numbers(evaluation: Evaluation, pictures: int = 0) -> dict[str, Any]:
    """Return the numbers of an evaluation that figures show: both curves, and counts of recovered images.

    Args:
        evaluation: of an attack on a data set with a hold-out set.
        pictures: number of pairs (reconstruction, training image) to return, evenly spaced from best to worst.
    """
    train_set, null = evaluation.train, evaluation.holdout
    assert train_set is not None
    assert null is not None
    assert evaluation.relative is not None
    level = evaluation.relative.level(FPR)
    found: dict[str, Any] = {
        "curve": train_set.curve.float(),
        "null_curve": null.curve.float(),
        "values": train_set.examples[0].numel(),
        "good": train_set.good,
        "fine": train_set.fine,
        "exact": train_set.exact,
        "null_good": null.good,
        "recovered": level.recovered,
        "null_recovered": level.holdout_recovered,
        "certified": evaluation.certified,
        "false_certificates": evaluation.false_certificates,
        "candidates": len(evaluation.found),
        "attack_seconds": evaluation.found.seconds,
        "outcome": evaluation.found.outcome.value,
    }
    if pictures:
        chosen = torch.linspace(0, len(train_set.pairs) - 1, min(pictures, len(train_set.pairs))).round().long()
        pairs = train_set.pairs[chosen]
        found |= {
            "reconstructed": evaluation.found.inputs[pairs[:, 0]],
            "originals": train_set.examples[pairs[:, 1]],
            "pair_squares": train_set.mean_squares[chosen],
        }
    return found


def relative_ranks(found: Reconstruction, data: Dataset) -> Calibration:
    """Rank training among held-out images as :func:`exhume.evaluate` does, without matching all candidates."""
    scale, images = UnitScale.of(data), torch.cat([data.train.inputs, data.holdout.inputs])
    ratios = relative_distances(found.inputs, images, scale)
    ranks = calibrate(ratios[: len(data.train)], ratios[len(data.train) :])
    assert ranks is not None
    return ranks


def count_similar(found: Reconstruction, data: Dataset) -> tuple[int, int, int]:
    """Count as Buzaglo et al. (2023) do, on training images and on as many held-out ones.

    Every image is matched with the candidate that correlates best (colour images at half resolution) and counts if
    their structural similarity exceeds 0.4. One candidate may serve several images.

    Returns:
        Similar training images, similar held-out images, and training images whose best correlation exceeds that of all
        but one percent of held-out ones.
    """
    scale = UnitScale.of(data)
    size = len(data.train)
    images = scale(torch.cat([data.train.inputs, data.holdout.inputs]))
    candidates = scale(found.inputs)
    best, place = best_matches(candidates, images)
    similarities = ssim(candidates[place], images)
    allowed = int(FPR * len(data.holdout))
    bar = best[size:].sort(descending=True).values[allowed]
    similar = similarities > SIMILAR
    return int(similar[:size].sum()), int(similar[size:][:size].sum()), int((best[:size] > bar).sum())


def best_matches(candidates: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the best correlation of every image with a candidate, and the place of that candidate."""

    def coarsen(values: Tensor) -> Tensor:
        is_colour = values.ndim == 4 and values.shape[1] == 3
        return torch.nn.functional.avg_pool2d(values, 2) if is_colour else values

    best, place = cross_correlations(coarsen(candidates).float(), coarsen(images).float()).max(0)
    return best, place


def count_exact(found: Reconstruction, images: Split) -> int:
    """Count images that a point fixed by unit edges shows with no pixel off by more than about five grey levels."""
    fixed = found.inputs[: len(found.diagnostics.get("edges_met", ()))].flatten(1)
    if not len(fixed):
        return 0
    nearest = torch.cdist(images.inputs.flatten(1).to(fixed), fixed, p=float("inf")).amin(1)
    return int((nearest < EXACT).sum())


def network_accuracy(view: AttackerView, test: Split) -> float:
    """Return the accuracy of a network on a test split, in percent."""
    return 100.0 * accuracy(view, test)


def infinite_width_accuracy(trained_on: Dataset, test: Split, kernel: InfiniteNTK, device: str) -> float:
    """Return the test accuracy of kernel regression, a network of infinite width, in percent."""
    where = resolve_device(device)
    inputs, queries = (trained_on.to_model(x).to(where).double() for x in (trained_on.train.inputs, test.inputs))
    targets = LOSSES["mse"].targets(trained_on, trained_on.train).to(where)
    regression = KernelRegression.fit(kernel, inputs, targets)
    return 100.0 * float((classify(regression(queries)).cpu() == test.labels).double().mean())


def mean_and_std(values: Sequence[float]) -> dict[str, float]:
    """Return the mean and the sample standard deviation, 0 for a single value."""
    return {"mean": statistics.fmean(values), "std": statistics.stdev(values) if len(values) > 1 else 0.0}
