"""Check that the data to compare with are in the units of the network, and that the hold-out set is one."""

import torch
from torch import Tensor

from exhume.core.errors import DataError
from exhume.records import AttackerView, Dataset
from exhume.records.record import Bounds

ROUNDING = 1e-4
"""Share of the value range by which values may lie outside it, for rounding in preprocessing."""
MOST_SHARED = 0.5
"""Share of held-out examples that may also be training examples, exclusive; tables often hold a few records twice."""


def check_data(view: AttackerView | None, data: Dataset) -> None:
    """Refuse data that would make an evaluation of an attack on ``view`` report false scores.

    Without a view, only what needs no network is checked.

    Raises:
        DataError: when there are no training examples, the shape or the range of values does not fit the view, values
            are not finite, or at least half of the held-out examples were trained on.
    """
    if len(data.train) == 0:
        raise DataError("The data has no training examples.")
    for name, split in (("training", data.train), ("held-out", data.holdout)):
        if len(split) == 0:
            continue
        shape = tuple(split.inputs.shape[1:])
        if view is not None and shape != view.input_shape:
            raise DataError(f"The {name} examples have shape {shape}, but the network takes {view.input_shape}.")
        if shape != data.input_shape:
            raise DataError(f"The {name} examples have shape {shape}, but the training examples {data.input_shape}.")
        if not bool(split.inputs.isfinite().all()):
            raise DataError(f"The {name} examples hold NaN or infinite values; fill them in or drop these examples.")
        if view is not None and view.bounds is not None:
            _check_range(split.inputs, view.bounds, name)
    _check_holdout(data.train.inputs, data.holdout.inputs)


def _check_range(inputs: Tensor, bounds: Bounds, name: str) -> None:
    low, high = float(inputs.min()), float(inputs.max())
    slack = ROUNDING * (bounds[1] - bounds[0])
    if low < bounds[0] - slack or high > bounds[1] + slack:
        raise DataError(
            f"The {name} examples have values from {low:.4g} to {high:.4g}, outside the bounds {bounds[0]:g} to "
            f"{bounds[1]:g} that were stated for the network; rescale the values, or state the bounds that it takes "
            "(--bounds LOW,HIGH; none where there are no limits)."
        )


def _check_holdout(trained: Tensor, held_out: Tensor) -> None:
    known = set(_row_hashes(trained))
    shared = sum(row in known for row in _row_hashes(held_out))
    if shared and shared >= MOST_SHARED * len(held_out):
        raise DataError(
            f"{shared} of the {len(held_out)} held-out examples are training examples too; hold out examples that the "
            "network was not trained on."
        )


def _row_hashes(inputs: Tensor) -> list[int]:
    rows = inputs.detach().cpu().to(torch.float64).flatten(1) + 0.0  # -0.0 and 0.0 are the same value
    return [hash(row.tobytes()) for row in rows.numpy()]
