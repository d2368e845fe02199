"""Bounds on the chance of coincidences, which certificates share."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, xlogy


def bound_log_tail(
    hits: NDArray[np.float64], trials: NDArray[np.float64] | int, chance: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Bound the log probability of at least ``hits`` successes in ``trials`` (Chernoff; Hoeffding 1963)."""
    rate = np.clip(hits / trials, chance, 1.0)
    divergence = xlogy(rate, rate / chance) + xlogy(1 - rate, (1 - rate) / (1 - chance))
    bound: NDArray[np.float64] = -trials * divergence
    return bound


def log_choices(things: int, chosen: int) -> float:
    """Return the log of the number of ways to choose some of many things.

    >>> round(np.exp(log_choices(5, 2)))
    10
    """
    return float(gammaln(things + 1) - gammaln(chosen + 1) - gammaln(things - chosen + 1))
