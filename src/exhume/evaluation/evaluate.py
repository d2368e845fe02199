"""From a reconstruction to an evaluation: every score on the training data, and again on held-out data."""

import platform
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from exhume.core.json_values import to_json_value
from exhume.evaluation.calibration import auc, calibrate
from exhume.evaluation.comparison import compare, example_distances, neighbour_distances
from exhume.evaluation.data_checks import check_data
from exhume.evaluation.distances import UnitScale
from exhume.evaluation.frozen_features import in_units_of
from exhume.evaluation.network import network_findings, threat_model
from exhume.records import AttackerView, Comparison, Dataset, Evaluation, Reconstruction, Victim, count_outputs
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

    An attack on a network above frozen layers recovers features. They are compared with the features of the data, which
    takes ``victim``.

    Args:
        found: the result of the attack.
        data: the data the network was trained on; without it the evaluation holds only what the attacker can prove.
        victim: the attacked network (or the view of it), for the threat model, accuracy and kernel distance.
        matching: ``greedy`` as in Loo et al. (2023), or ``optimal`` for the smallest sum of distances.

    Returns:
        An :class:`~exhume.records.Evaluation`; ``to_json()`` is for programs, :func:`exhume.report` for readers.

    Raises:
        DataError: when the data does not fit the reconstruction or the network, holds values that are not finite, or
            its hold-out set was trained on; :func:`exhume.audit` refuses the same.
        ExhumeError: when the model does not take the view's inputs, or does not return a tensor.
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
    if view is not None:
        count_outputs(view.model, view.input_shape)  # refuses models that cannot be evaluated
    check_data(view, data)
    seen = in_units_of(found, data, view)
    scale = UnitScale.of(seen)
    train = compare(found.inputs, seen.train, scale, matching)
    examples = torch.cat([seen.train.inputs, seen.holdout.inputs])
    # The curve is compared with one of the same length; the ranks may use every held-out example.
    distances = example_distances(found.inputs, examples, scale)
    ratios = (distances / neighbour_distances(examples, scale)).nan_to_num(torch.inf)  # see relative_distances
    size = len(seen.train)
    return Evaluation(
        **about,
        dataset=seen.name,
        classes=seen.classes,
        features=seen.features,
        bounds=seen.bounds,
        train=train,
        holdout=compare(found.inputs, seen.holdout.take(slice(size)), scale, matching),
        calibration=calibrate(distances[:size], distances[size:]),
        relative=calibrate(ratios[:size], ratios[size:]),
        confidence_auc=_confidence_auc(found, train),
        network={} if view is None else _finite(network_findings(view, data)),
    )


def _confidence_auc(found: Reconstruction, train: Comparison) -> float | None:
    is_good = train.nearest_distances / max(1, train.examples[:1].numel()) < GOOD
    if not bool(is_good.any()) or bool(is_good.all()):
        return None
    # auc counts small values as positive, so the more confident must come out smaller
    return auc(-found.confidence[is_good], -found.confidence[~is_good])


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if np.isfinite(value)}


def _versions() -> dict[str, str]:
    return {
        "exhume": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }
