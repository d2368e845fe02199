"""Precision of the matrix products of a search: which steps round their factors, and how."""

from typing import Literal

import torch

from exhume.core.devices import has_fast_bfloat16

Precision = Literal["float32", "tf32", "mixed", "float64"]
"""``tf32`` lets a GPU round the factors of matrix products, which is faster and less exact. ``mixed`` does so until the
last fifth of the steps, which decides how exact the result is; on a CPU with bfloat16 products it rounds to bfloat16,
and on any other CPU it is ``float32``."""

AnyPrecision = Literal["float32", "tf32", "half", "mixed", "float64"]
"""Also ``half``, for searches whose result need not be exact: every step has numbers of 16 bits where they are fast. On
a GPU all values between the variables and their gradients are float16, which has the resolution of TF32 and half the
traffic to memory. On a CPU it rounds the factors of matrix products to bfloat16, as ``mixed`` does."""

_COARSE_SHARES: dict[AnyPrecision, float] = {"tf32": 1.0, "half": 1.0, "mixed": 0.8}


def coarse_share(precision: AnyPrecision) -> float:
    """Return the fraction of the steps, the first ones, in which the factors of matrix products may be rounded.

    >>> coarse_share("mixed"), coarse_share("float32")
    (0.8, 0.0)
    """
    return _COARSE_SHARES.get(precision, 0.0)


def dtype_of(precision: AnyPrecision) -> torch.dtype:
    """Return the type of the variables and of exact steps."""
    return torch.float64 if precision == "float64" else torch.float32


def short_dtype(precision: AnyPrecision, device: torch.device) -> torch.dtype | None:
    """Return the dtype of 16 bits to which coarse steps round; None where they do not.

    On a CPU with bfloat16 products that work, ``mixed`` precision rounds to it, too, in place of TF32.
    """
    if device.type != "cpu":
        return torch.float16 if precision == "half" else None
    return torch.bfloat16 if precision in ("half", "mixed") and has_fast_bfloat16() else None


def precision_note(precision: AnyPrecision, device: torch.device) -> dict[str, str]:
    """Return a diagnostic if short products were asked for and the CPU has none that work."""
    if precision not in ("half", "mixed") or device.type != "cpu" or short_dtype(precision, device) is not None:
        return {}
    return {"precision": "float32 in every step: this CPU has no bfloat16 products that work"}
