"""From a reconstruction to an audit: every score, and every score again on data nobody trained on."""

import platform
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from exhume.core.errors import DataError
from exhume.core.json_values import to_json_value
from exhume.evaluation.calibration import auc, calibrate
from exhume.evaluation.comparison import compare, example_distances, neighbour_distances
from exhume.evaluation.distances import UnitScale
from exhume.evaluation.network import network_findings, threat_model
from exhume.records import AttackerView, Comparison, Dataset, Evaluation, Reconstruction, Split, Victim
from exhume.records.comparison import GOOD
from exhume.version import __version__


def evaluate(
    found: Reconstruction,
    data: Dataset | None = None,
    *,
    victim: Victim | AttackerView | None = None,
    matching: str = "greedy",
) -> Evaluation:
    """Measure what an attack found against the training data, and against as many held-out examples.

    Args:
        found: what the attack returned.
        data: the data the network was trained on; without it only what the attacker proves is reported.
        victim: the attacked network (or the view of it), for the threat model, accuracy and kernel distance.
        matching: ``greedy`` as in Loo et al. (2023), or ``optimal`` for the smallest sum of distances.

    Returns:
        An :class:`~exhume.records.Evaluation`; ``to_json()`` gives it to machines, :func:`exhume.report` to people.

    Raises:
        DataError: when reconstruction and data are not of one shape.
    """
    found = replace(found.cpu(), diagnostics=to_json_value(found.diagnostics))
    view = victim.view() if isinstance(victim, Victim) else victim
    about: dict[str, Any] = {
        "found": found,
        "matching": matching,
        "given": {} if view is None else to_json_value(threat_model(view)),
        "versions": _versions(),
    }
    if data is None:
        return Evaluation(**about, bounds=None if view is None else view.bounds)
    if tuple(found.inputs.shape[1:]) != data.input_shape:
        raise DataError(
            f"The reconstruction holds inputs of shape {tuple(found.inputs.shape[1:])}, "
            f"the data set {data.name} of shape {data.input_shape}."
        )
    scale = UnitScale.of(data)
    train = compare(found.inputs, data.train, scale, matching)
    everybody = torch.cat([data.train.inputs, data.holdout.inputs])
    # The curve is laid beside one of the same length; the ranks may use every held-out example there is.
    distances = example_distances(found.inputs, everybody, scale)
    ratios = distances / neighbour_distances(everybody, scale)
    ratios = ratios.nan_to_num(torch.inf)  # of two equal examples nobody can say which one was recovered
    size = len(data.train)
    return Evaluation(
        **about,
        dataset=data.name,
        classes=data.classes,
        features=data.features,
        bounds=data.bounds,
        train=train,
        holdout=compare(found.inputs, _first(data.holdout, size), scale, matching),
        calibration=calibrate(distances[:size], distances[size:]),
        relative=calibrate(ratios[:size], ratios[size:]),
        confidence_auc=_confidence_auc(found, train),
        network={} if view is None else _finite(network_findings(view, data)),
    )


def _confidence_auc(found: Reconstruction, train: Comparison) -> float | None:
    good = train.nearest_distances / max(1, train.examples[:1].numel()) < GOOD
    if not bool(good.any()) or bool(good.all()):
        return None
    # auc takes small values for positive, so the more confident must come out smaller
    return auc(-found.confidence[good], -found.confidence[~good])


def _first(split: Split, count: int) -> Split:
    return Split(inputs=split.inputs[:count], labels=split.labels[:count])


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if np.isfinite(value)}


def _versions() -> dict[str, str]:
    return {
        "exhume": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }
