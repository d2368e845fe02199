"""Precision of the matrix products of a search: which steps round their factors, and how."""

from typing import Literal

import torch

from exhume.core.devices import has_fast_bfloat16

Precision = Literal["float32", "tf32", "mixed", "float64"]
"""``tf32`` lets a GPU round the factors of matrix products, which is faster and less exact. ``mixed`` does so until the
last fifth of the steps, which decides how exact the result is; on a CPU with bfloat16 products it rounds to bfloat16,
and on any other CPU it is ``float32``."""

_COARSE_SHARES: dict[Precision, float] = {"tf32": 1.0, "mixed": 0.8}


def coarse_share(precision: Precision) -> float:
    """Return the fraction of the steps, the first ones, in which the factors of matrix products may be rounded.

    >>> coarse_share("mixed"), coarse_share("float32")
    (0.8, 0.0)
    """
    return _COARSE_SHARES.get(precision, 0.0)


def dtype_of(precision: Precision) -> torch.dtype:
    """Return the type of the variables and of exact steps."""
    return torch.float64 if precision == "float64" else torch.float32


def rounds_to_bfloat16(precision: Precision, device: torch.device) -> bool:
    """Return whether coarse steps round to bfloat16: in ``mixed`` precision on a CPU where that is faster and works."""
    return precision == "mixed" and device.type == "cpu" and has_fast_bfloat16()


def precision_note(precision: Precision, device: torch.device) -> dict[str, str]:
    """Return a diagnostic if ``mixed`` precision was asked for and the CPU has no bfloat16 products that work."""
    if precision != "mixed" or device.type != "cpu" or rounds_to_bfloat16(precision, device):
        return {}
    return {"precision": "float32 in every step: this CPU has no bfloat16 products that work"}
