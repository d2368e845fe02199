"""Probabilities from scores: calibrate an attacker's score on networks whose training data is known, and check it.

An attacker can train networks on known data, attack them, and see which candidates are real. That turns any score (how
well restarts agree, the residual of the attack) into a probability with an error bar, which holds for other networks as
far as they are of the same kind. :func:`reliability` measures whether it holds, on networks that the calibration did
not use.

Candidates of one network are correlated, so counts are worth less than independent ones. With the network of each
candidate given as its *group*, error bars are widened by the design effect measured between groups, and more so where
few groups are available to measure it.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from scipy.special import betaincinv, ndtri, stdtrit
from torch import Tensor

from exhume.core.errors import ExhumeError

LEVEL = 0.95
"""Confidence level of every error bar here."""
LEAST = 25
"""Least number of candidates per step of a belief."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Belief:
    """An increasing step function from scores to probabilities: the fraction of true candidates per range of scores."""

    cuts: Float[Tensor, " cut"]
    """Scores between neighbouring blocks; a score equal to a cut belongs to the block above it."""
    true: Int[Tensor, " block"]
    total: Int[Tensor, " block"]
    design: float = 1.0
    """Design effect: counts are divided by it before error bars are computed; 1 for independent candidates."""

    def probability(self, scores: Float[Tensor, " candidate"]) -> Float[Tensor, " candidate"]:
        """Return the probability that a candidate with each score is true."""
        # Half a success is added: no finite number of observations makes a candidate certain.
        return ((self.true + 0.5) / (self.total + 1.0)).double()[self._blocks(scores)]

    def interval(self, scores: Float[Tensor, " candidate"]) -> Float[Tensor, "candidate 2"]:
        """Return the error bar of each probability."""
        bars = [interval(int(true), int(total), self.design) for true, total in zip(self.true, self.total, strict=True)]
        return torch.tensor(bars, dtype=torch.float64)[self._blocks(scores)]

    def to_json(self) -> dict[str, Any]:
        """Return the belief as JSON values."""
        return {
            "cuts": self.cuts.tolist(),
            "true": self.true.tolist(),
            "total": self.total.tolist(),
            "design": self.design,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Belief":
        """Read the values that :meth:`to_json` returned."""
        return cls(
            cuts=torch.tensor(values["cuts"], dtype=torch.float64),
            true=torch.tensor(values["true"]),
            total=torch.tensor(values["total"]),
            design=float(values["design"]),
        )

    def _blocks(self, scores: Float[Tensor, " candidate"]) -> Int[Tensor, " candidate"]:
        return torch.bucketize(scores.double().contiguous(), self.cuts, right=True)


def learn_belief(
    scores: Float[Tensor, " candidate"],
    truth: Bool[Tensor, " candidate"],
    groups: Int[Tensor, " candidate"] | None = None,
    *,
    least: int = LEAST,
) -> Belief:
    """Learn how often candidates of each score are true.

    Neighbouring scores are pooled into blocks of at least ``least`` candidates. Blocks in which a higher score would be
    less probable are merged (isotonic regression by pooling adjacent violators).

    Args:
        scores: larger for candidates that are more likely to be true.
        truth: which candidates are real.
        groups: the network of each candidate; None: candidates are independent.
        least: least number of candidates per step.
    """
    if len(scores) == 0 or not bool(torch.isfinite(scores).all()):
        raise ExhumeError("A belief is learnt from the finite scores of at least one candidate.")
    order = scores.argsort(stable=True)
    ranked, hits = scores[order].double(), truth[order]
    blocks: list[tuple[int, int, float]] = []  # true, total, lowest score
    first = 0
    for last in range(1, len(ranked) + 1):
        is_end = last == len(ranked)
        if not is_end and (last - first < least or ranked[last] == ranked[last - 1]):
            continue
        count = int(hits[first:last].sum()), last - first
        if is_end and count[1] < least and blocks:  # too few for a block of their own
            before = blocks.pop()
            blocks.append((before[0] + count[0], before[1] + count[1], before[2]))
        else:
            blocks.append((*count, float(ranked[first])))
        first = last
        while len(blocks) > 1 and blocks[-1][0] * blocks[-2][1] <= blocks[-2][0] * blocks[-1][1]:
            above, below = blocks.pop(), blocks.pop()
            blocks.append((above[0] + below[0], above[1] + below[1], below[2]))
    plain = Belief(
        cuts=torch.tensor([low for _, _, low in blocks[1:]], dtype=torch.float64),
        true=torch.tensor([true for true, _, _ in blocks]),
        total=torch.tensor([total for _, total, _ in blocks]),
    )
    design = 1.0 if groups is None else design_effect(plain.probability(scores), truth, groups)
    return replace(plain, design=design)


@dataclass(frozen=True, kw_only=True)
class Bin:
    """Candidates with about the same predicted probability."""

    predicted: float
    """Mean predicted probability."""
    observed: float
    """Fraction of true candidates."""
    low: float
    high: float
    """Error bar of that fraction."""
    true: int
    total: int
    slack: float = 0.0
    """Half the width of the error bar of the predicted probabilities."""

    @property
    def holds(self) -> bool:
        """Whether prediction and fraction differ by no more than their two error bars explain."""
        towards = self.high - self.observed if self.predicted > self.observed else self.observed - self.low
        return abs(self.predicted - self.observed) <= math.hypot(towards, self.slack)


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """Whether, of candidates with predicted probability p, a fraction p is true."""

    bins: tuple[Bin, ...]

    @property
    def error(self) -> float:
        """Expected calibration error: mean difference of prediction and fraction, weighted by candidates per bin."""
        total = sum(one.total for one in self.bins)
        return sum(one.total * abs(one.predicted - one.observed) for one in self.bins) / total

    @property
    def holding(self) -> int:
        """Number of bins whose prediction holds; one in twenty fails by chance."""
        return sum(one.holds for one in self.bins)


def reliability(
    probabilities: Float[Tensor, " candidate"],
    truth: Bool[Tensor, " candidate"],
    groups: Int[Tensor, " candidate"] | None = None,
    *,
    bars: Float[Tensor, "candidate 2"] | None = None,
    bins: int = 8,
) -> Reliability:
    """Compare probabilities with the truth, in bins of about equal size; equal probabilities stay together.

    Args:
        probabilities: predicted per candidate.
        truth: which candidates are real.
        groups: the network of each candidate; None: candidates are independent.
        bars: the error bars of the probabilities (:meth:`Belief.interval`); None: the probabilities are exact.
        bins: largest number of bins.
    """
    order = probabilities.argsort(stable=True)
    ranked = probabilities[order]
    edges = [0]
    for wanted in torch.linspace(0, len(ranked), bins + 1)[1:].round().long().tolist():
        last = int(torch.searchsorted(ranked, ranked[wanted - 1], right=True))
        if last > edges[-1]:
            edges.append(last)
    found = []
    for first, last in itertools.pairwise(edges):
        inside = order[first:last]
        given, hits = probabilities[inside], truth[inside]
        true, total = int(hits.sum()), len(inside)
        # Around the observed fraction: a prediction that is wrong for every group must not widen its own error bar.
        spread = torch.full_like(given, true / total)
        design = 1.0 if groups is None else design_effect(spread, hits, groups[inside])
        low, high = interval(true, total, design)
        found.append(
            Bin(
                predicted=float(given.mean()),
                observed=true / total,
                low=low,
                high=high,
                true=true,
                total=total,
                slack=0.0 if bars is None else float(bars[inside].diff(dim=1).mean()) / 2,
            )
        )
    return Reliability(bins=tuple(found))


def interval(true: int, total: int, design: float = 1.0) -> tuple[float, float]:
    """Return the exact (Clopper–Pearson) error bar of a fraction, with counts divided by the design effect.

    >>> low, high = interval(0, 10)
    >>> round(low, 3), round(high, 3)
    (0.0, 0.308)
    """
    hits, misses, tail = true / design, (total - true) / design, (1 - LEVEL) / 2
    low = float(betaincinv(hits, misses + 1, tail)) if true > 0 else 0.0
    high = float(betaincinv(hits + 1, misses, 1 - tail)) if true < total else 1.0
    return low, high


def design_effect(
    probabilities: Float[Tensor, " candidate"], truth: Bool[Tensor, " candidate"], groups: Int[Tensor, " candidate"]
) -> float:
    """Return the factor by which counts must be divided because candidates of one group are correlated.

    It is the variance of sums over groups relative to that of independent candidates, at least 1, times a correction
    for few groups: the square of the ratio of the quantiles of Student's and the normal distribution.
    """
    found, place = groups.unique(return_inverse=True)  # type: ignore[no-untyped-call]
    expected = float((probabilities * (1 - probabilities)).sum())
    if len(found) < 2 or expected == 0.0:
        return 1.0
    gaps = torch.zeros(len(found), dtype=torch.float64).index_add_(0, place, truth.double() - probabilities.double())
    ratio = max(1.0, float(gaps.square().sum()) * len(found) / (len(found) - 1) / expected)
    middle = 0.5 + LEVEL / 2
    return ratio * float(stdtrit(len(found) - 1, middle) / ndtri(middle)) ** 2
