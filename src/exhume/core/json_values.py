"""Conversion of findings into values that JSON can hold."""

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from torch import Tensor


def to_json_value(value: Any) -> Any:
    """Convert tensors, tuples and numbers of any kind into JSON values; a number that is not finite becomes None.

    >>> to_json_value({"psnr": [30.0, float("inf")], "shape": (1, 8)})
    {'psnr': [30.0, None], 'shape': [1, 8]}
    """
    if isinstance(value, Tensor):
        return to_json_value(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): to_json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(item) for item in value]
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    return str(value)
