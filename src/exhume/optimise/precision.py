"""Precision of the matrix products of a search: which steps round their factors, and how."""

from typing import Literal

import torch

from exhume.core.devices import has_fast_bfloat16

Precision = Literal["float32", "tf32", "mixed", "float64"]
"""``tf32`` lets a GPU round the factors of matrix products, which is faster and less exact. ``mixed`` does so until the
last fifth of the steps, which decides how exact the result is; on a CPU with bfloat16 products it rounds to bfloat16,
and on any other CPU it is ``float32``."""

AnyPrecision = Literal["float32", "tf32", "bfloat16", "mixed", "float64"]
"""Also ``bfloat16``, for searches whose result need not be exact: every step rounds to bfloat16 where that is fast. On
a GPU it rounds not only the factors of matrix products but everything between them: half the traffic to memory."""

_COARSE_SHARES: dict[AnyPrecision, float] = {"tf32": 1.0, "bfloat16": 1.0, "mixed": 0.8}


def coarse_share(precision: AnyPrecision) -> float:
    """Return the fraction of the steps, the first ones, in which the factors of matrix products may be rounded.

    >>> coarse_share("mixed"), coarse_share("float32")
    (0.8, 0.0)
    """
    return _COARSE_SHARES.get(precision, 0.0)


def dtype_of(precision: AnyPrecision) -> torch.dtype:
    """Return the type of the variables and of exact steps."""
    return torch.float64 if precision == "float64" else torch.float32


def rounds_to_bfloat16(precision: AnyPrecision, device: torch.device) -> bool:
    """Return whether coarse steps round to bfloat16.

    On a CPU where that is faster and works they do in ``mixed`` precision, too, in place of TF32.
    """
    if device.type == "cpu":
        return precision in ("bfloat16", "mixed") and has_fast_bfloat16()
    return precision == "bfloat16"


def precision_note(precision: AnyPrecision, device: torch.device) -> dict[str, str]:
    """Return a diagnostic if bfloat16 products were asked for and the CPU has none that work."""
    if precision not in ("bfloat16", "mixed") or device.type != "cpu" or rounds_to_bfloat16(precision, device):
        return {}
    return {"precision": "float32 in every step: this CPU has no bfloat16 products that work"}
