"""Evidence about each candidate from several runs, and a verdict on it: proven, claimed at an error rate, or unproven.

Only :func:`are_true` uses training examples; it serves to measure the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhume.core.correlation import agreement_between_runs
from exhume.core.errors import ExhumeError
from exhume.evaluation.belief import Belief
from exhume.evaluation.distances import UnitScale, squared_distances
from exhume.records import Dataset, Reconstruction, Split
from exhume.records.comparison import GOOD
from exhume.records.record import Bounds

Kind = Literal["agreement", "residual", "confidence", "certificate"]
ERROR_RATE = 0.01
"""Largest accepted rate of wrong claims of membership."""
CERTIFICATE_ERROR = 1e-3
"""Least error rate of a certificate: the rate at which a whole certifying run may be wrong."""
FAR = 1e6
"""Distance to the nearest proof where there is no proof."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """What an attacker knows about each candidate without the training data."""

    inputs: Float[Tensor, "candidate ..."]
    """The candidates of all runs, in pixel units."""
    run: Int[Tensor, " candidate"]
    agreement: Float[Tensor, " candidate"]
    """Highest correlation with a candidate of another run, from 0 to 1; 0 for a single run."""
    residual: Float[Tensor, " candidate"]
    """Residual of the candidate's run; 0 where the attack has no objective."""
    confidence: Float[Tensor, " candidate"]
    """The attack's own confidence."""
    proof_distance: Float[Tensor, " candidate"]
    """Mean squared distance to the nearest certified input, in units of the value range; FAR where there is none."""
    proof_p: Float[Tensor, " candidate"]
    """The p-value of that certificate; 1 where there is none."""

    def __len__(self) -> int:
        return len(self.inputs)

    def score(self, kind: Kind) -> Float[Tensor, " candidate"]:
        """Return one kind of evidence as a score that is larger for more credible candidates."""
        scores = {
            "agreement": self.agreement,
            "residual": -self.residual,
            "confidence": self.confidence,
            "certificate": -self.proof_distance,
        }
        return scores[kind].double()

    @property
    def is_proven(self) -> Bool[Tensor, " candidate"]:
        """Which candidates show a certified input."""
        return self.proof_distance < GOOD


def gather(
    runs: Sequence[Reconstruction],
    *,
    bounds: Bounds | None = (0.0, 1.0),
    certificates: Sequence[Reconstruction] = (),
) -> Evidence:
    """Gather the evidence of runs from independent starts, and of certificates of any attack on the same network.

    Args:
        runs: results of one attack from different starts or seeds.
        bounds: the range of an input value, which is the unit of distances; None: no rescaling.
        certificates: reconstructions whose certified inputs count as proofs; those of ``runs`` always do.
    """
    if not runs:
        raise ExhumeError("Evidence is gathered from at least one run.")
    inputs = torch.cat([one.inputs for one in runs])
    run = torch.repeat_interleave(torch.arange(len(runs)), torch.tensor([len(one) for one in runs]))
    proven = [(one.inputs[one.certified], _p_values(one)[one.certified]) for one in (*runs, *certificates)]
    width = 1.0 if bounds is None else float(bounds[1] - bounds[0])
    proof_distance, proof_p = _nearest_proof(
        inputs.double() / width,
        torch.cat([found for found, _ in proven]).double() / width,
        torch.cat([p for _, p in proven]),
    )
    residuals = torch.tensor([_residual(one) for one in runs], dtype=torch.float64)
    return Evidence(
        inputs=inputs,
        run=run,
        agreement=agreement_between_runs(inputs.double(), run),
        residual=residuals[run],
        confidence=torch.cat([one.confidence for one in runs]).double(),
        proof_distance=proof_distance,
        proof_p=proof_p,
    )


def are_true(inputs: Float[Tensor, "candidate ..."], data: Dataset) -> Bool[Tensor, " candidate"]:
    """Return which candidates show a training example: a good match, and nearer than any held-out example."""
    scale = UnitScale.of(data)
    trained, held_out = (nearest_squares(inputs, split, scale) for split in (data.train, data.holdout))
    return (trained < GOOD) & (trained < held_out)


def nearest_squares(
    inputs: Float[Tensor, "candidate ..."], split: Split, scale: UnitScale
) -> Float[Tensor, " candidate"]:
    """Return the mean squared distance from each candidate to the nearest example of a split, in unit values."""
    if len(split) == 0:
        return torch.full((len(inputs),), torch.inf, dtype=torch.float64)
    return squared_distances(scale(inputs), scale(split.inputs)).amin(1) / inputs[0].numel()


@dataclass(frozen=True, kw_only=True)
class Membership:
    """The verdict on one candidate."""

    claimed: bool
    """Whether the candidate is claimed to be in the training set."""
    probability: float | None
    """Measured probability that it is in the training set; None: not measured."""
    low: float | None = None
    high: float | None = None
    """Error bar of that probability."""
    error_rate: float | None = None
    """Largest rate at which such claims are wrong; None without a claim."""
    basis: str
    """Basis of the verdict: ``certificate``, a kind of evidence, or ``nothing``."""

    @property
    def sentence(self) -> str:
        """The verdict as a sentence."""
        if self.claimed:
            return f"In the training set (by {self.basis}; at most {self.error_rate:.1%} of such claims are wrong)."
        if self.probability is None or self.low is None or self.high is None:
            return "Plausible but unproven: it was not measured how often such candidates are real."
        return (
            f"Plausible but unproven: of candidates like it {self.probability:.0%} ({self.low:.0%} to {self.high:.0%}) "
            "were in a training set."
        )


def memberships(
    evidence: Evidence, belief: Belief | None = None, kind: Kind = "agreement", *, error_rate: float = ERROR_RATE
) -> list[Membership]:
    """Return for each candidate whether it is claimed to be in the training set, and how often such claims are wrong.

    A certificate is a proof, at its own error rate. Without one, a claim needs a belief, learnt on networks with known
    data, whose error bar lies above ``1 − error_rate``. Everything else is plausible but unproven.

    Args:
        evidence: what the attacker knows about each candidate.
        belief: probabilities of one kind of score; None: not measured.
        kind: the kind of score that the belief is about.
        error_rate: largest accepted rate of wrong claims.
    """
    scores = evidence.score(kind)
    chances = None if belief is None else belief.probability(scores).tolist()
    bars = None if belief is None else belief.interval(scores).tolist()
    verdicts = []
    for number, is_proven in enumerate(evidence.is_proven.tolist()):
        if is_proven:
            wrong = float(evidence.proof_p[number])
            proven = Membership(claimed=True, probability=1.0 - wrong, error_rate=wrong, basis="certificate")
            verdicts.append(proven)
        elif chances is None or bars is None:
            verdicts.append(Membership(claimed=False, probability=None, basis="nothing"))
        else:
            low, high = bars[number]
            claimed = low >= 1.0 - error_rate
            wrong_at_most = 1.0 - low if claimed else None
            verdicts.append(
                Membership(
                    claimed=claimed,
                    probability=chances[number],
                    low=low,
                    high=high,
                    error_rate=wrong_at_most,
                    basis=kind,
                )
            )
    return verdicts


def _p_values(found: Reconstruction) -> Float[Tensor, " candidate"]:
    """Return the p-values of certificates, none below the error rate of the whole run."""
    least = torch.full((len(found),), CERTIFICATE_ERROR, dtype=torch.float64)
    return least if found.p_values is None else torch.maximum(found.p_values.double(), least)


def _nearest_proof(
    candidates: Float[Tensor, "candidate ..."], proofs: Float[Tensor, "proof ..."], p_values: Float[Tensor, " proof"]
) -> tuple[Float[Tensor, " candidate"], Float[Tensor, " candidate"]]:
    if len(proofs) == 0 or len(candidates) == 0:
        return candidates.new_full((len(candidates),), FAR), candidates.new_ones(len(candidates))
    distances, place = (squared_distances(candidates, proofs) / candidates[0].numel()).min(1)
    return distances, torch.where(distances < GOOD, p_values[place], 1.0)


def _residual(found: Reconstruction) -> float:
    if found.history is None or len(found.history) == 0:
        return 0.0
    end = float(found.history[-1])
    return end if end == end and abs(end) < FAR else FAR
