"""How far training examples stand out from held-out ones.

Every example of both sets has one score, small where it was recovered: its distance to the nearest candidate, or that
distance relative to the nearest other real example. Neither depends on which set an example is from. So if the attack
knows nothing about the training set, training and held-out scores are exchangeable, and ranks among the held-out scores
are exact p-values. (Matched distances are not exchangeable: which pairs are matched depends on the rest of the set.)
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from scipy.stats import hypergeom
from torch import Tensor

from exhume.records import Calibration, Level

FALSE_POSITIVE_RATES = (0.01, 0.001)
"""Rates at which recovered examples are counted, as is usual for membership inference."""


def calibrate(
    train: Float[Tensor, " example"],
    holdout: Float[Tensor, " stranger"],
    rates: Sequence[float] = FALSE_POSITIVE_RATES,
) -> Calibration | None:
    """Compare the scores of training examples with those of held-out ones; None where either set is empty."""
    if len(train) == 0 or len(holdout) == 0:
        return None
    false_positive_rates, true_positive_rates = roc(train, holdout)
    return Calibration(
        scores=train,
        p_values=p_values(train, holdout),
        false_positive_rates=false_positive_rates,
        true_positive_rates=true_positive_rates,
        auc=auc(train, holdout),
        null_size=len(holdout),
        levels=tuple(level(train, holdout, rate) for rate in rates),
    )


def p_values(train: Float[Tensor, " example"], null: Float[Tensor, " stranger"]) -> Float[Tensor, " example"]:
    """Return the p-value of each training example: its rank among the null, with itself counted.

    The one added to both counts makes it valid for null sets of any size: under the null ``P(p <= a) <= a``.

    >>> p_values(torch.tensor([0.5, 3.5]), torch.tensor([1.0, 2.0, 3.0]))
    tensor([0.2500, 1.0000], dtype=torch.float64)
    """
    return (1 + _nearer(train, null)).double() / (1 + len(null))


def recovered(
    train: Float[Tensor, " example"], null: Float[Tensor, " stranger"], fpr: float
) -> Bool[Tensor, " example"]:
    """Return which training examples are nearer than all but a fraction ``fpr`` of the null."""
    return _nearer(train, null) <= _allowed(len(null), fpr)


def level(train: Float[Tensor, " example"], holdout: Float[Tensor, " stranger"], fpr: float) -> Level:
    """Count recovered examples at one false-positive rate, with the guaranteed rate and the chance of the count.

    If train and holdout are exchangeable, the count is at least ``n`` exactly when the nearest ``n + allowed`` of all
    examples include ``n`` or more training examples.
    """
    count, allowed = int(recovered(train, holdout, fpr).sum()), _allowed(len(holdout), fpr)
    return Level(
        fpr=fpr,
        recovered=count,
        holdout_recovered=int(recovered(holdout, train, fpr).sum()),
        bound=(allowed + 1) / (len(holdout) + 1),
        chance=chance_of_count(count, count + allowed, len(train), len(holdout)),
    )


def chance_of_count(count: int, drawn: int, train: int, holdout: int) -> float:
    """Return the probability that ``drawn`` examples, drawn at random, include ``count`` or more training examples.

    >>> round(chance_of_count(2, 2, 2, 2), 6)  # both of two, out of two and two
    0.166667
    """
    return float(hypergeom.sf(count - 1, train + holdout, train, drawn))


def roc(
    positive: Float[Tensor, " positive"], negative: Float[Tensor, " negative"]
) -> tuple[Float[Tensor, " point"], Float[Tensor, " point"]]:
    """Return false- and true-positive rates over all cuts, from (0, 0) to (1, 1); small values count as positive."""
    cuts = torch.unique(torch.cat([positive, negative]))
    rates = [torch.cat([cuts.new_zeros(1), _nearer(cuts, side) / len(side)]).double() for side in (negative, positive)]
    return rates[0], rates[1]


def auc(positive: Float[Tensor, " positive"], negative: Float[Tensor, " negative"]) -> float:
    """Return the probability that a positive value is smaller than a negative one, ties counting half.

    >>> auc(torch.tensor([1.0, 2.0]), torch.tensor([2.0, 3.0]))
    0.875
    """
    ordered = negative.sort().values
    at_most = torch.searchsorted(ordered, positive, right=True)
    below = torch.searchsorted(ordered, positive, right=False)
    return 1 - float((at_most + below).double().mean()) / (2 * len(negative))


def _nearer(distances: Float[Tensor, " example"], null: Float[Tensor, " stranger"]) -> Int[Tensor, " example"]:
    """Count for each distance how many of the null distances are at most as large."""
    return torch.searchsorted(null.sort().values, distances, right=True)


def _allowed(size: int, fpr: float) -> int:
    """Return how many of ``size`` held-out examples a false-positive rate lets through."""
    return math.floor(fpr * size + 1e-9)
