"""Bounds on the chance that zeros and agreement of a row are accidents.

Two nulls: a generic vector of the row space has no more zeros than can be forced, and zeros that are unrelated to an
input lie where it is off by chance only. Under the second null the chance that *any* input of the remaining freedom
does as well is bounded by the number of halfspace patterns (Cover 1965).
"""

import math

import torch
from jaxtyping import Float
from scipy.special import gammaln, logsumexp
from torch import Tensor

from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.zeros import classify_entries, count_chance_zeros, find_zeros
from exhume.core.chance import bound_log_tail, log_choices


def log_p_generic(problem: RowProblem, rows: Float[Tensor, "row rank"]) -> Float[Tensor, " row"]:
    """Bound the log probability that a generic vector of the row space has as many zeros as each row.

    Any ``rank - 1`` zeros can be forced. Each further one is a coincidence, whose probability is estimated from the
    small entries above the zeros. The union bound accounts for the choice of the forced ones.
    """
    forced = min(problem.rank - 1, problem.units)
    return (log_p_zeros(problem, rows, is_strict=True) + log_choices(problem.units, forced)).clamp(max=0.0)


def log_p_zeros(
    problem: RowProblem, rows: Float[Tensor, "row rank"], *, is_strict: bool = False
) -> Float[Tensor, " row"]:
    """Return the log probability that a vector with ``rank - 1`` forced zeros has as many zeros as each row.

    ``is_strict`` as in :func:`~exhume.attacks.gates.zeros.count_chance_zeros`.
    """
    zeros = find_zeros(problem, rows).sum(dim=1)
    expected = count_chance_zeros(problem, rows, is_strict=is_strict)
    chance = (expected.double() / problem.units).clamp(max=1 - 1e-9).cpu().numpy()
    forced = min(problem.rank - 1, problem.units)
    beyond = (zeros - forced).clamp(min=0).double().cpu().numpy()
    return torch.as_tensor(bound_log_tail(beyond, max(problem.units - forced, 1), chance), dtype=torch.float64)


def log_p_placement(
    problem: RowProblem, rows: Float[Tensor, "row rank"], inputs: Float[Tensor, "row value"], free: int
) -> Float[Tensor, " row"]:
    """Bound the log probability that the zeros of a row lie where its input is off, if they are unrelated to it.

    An input that leaves a fraction of the units off before and after training has each unrelated zero among them with
    this probability. By the union bound over all patterns that halfspaces with ``free`` free directions make.
    """
    gated = problem.gated.bool()
    off = (torch.maximum(inputs @ problem.before.T, inputs @ problem.after.T) <= 0) & gated
    zeros = classify_entries(problem, rows).zero & gated
    chance = (off.sum(dim=1).double() / gated.sum()).clamp(1e-9, 1 - 1e-9).cpu().numpy()
    hits, trials = ((zeros & off).sum(dim=1), zeros.sum(dim=1).clamp(min=1))
    tail = bound_log_tail(hits.double().cpu().numpy(), trials.double().cpu().numpy(), chance)
    patterns = log_halfspace_patterns(2 * int(gated.sum()), free)
    return torch.as_tensor(tail + patterns, dtype=torch.float64).clamp(max=0.0)


def log_halfspace_patterns(points: int, free: int) -> float:
    """Return the log of the number of on/off patterns that halfspaces with ``free`` directions make on ``points``.

    Cover (1965): ``2 Σ_{k<n} C(points − 1, k)`` for ``n`` directions; one pattern when nothing is free.

    >>> round(math.exp(log_halfspace_patterns(4, 2)))
    8
    """
    if free == 0:
        return 0.0
    ks = torch.arange(min(free, points)).numpy()
    terms = gammaln(points) - gammaln(ks + 1) - gammaln(points - ks)
    return math.log(2.0) + float(logsumexp(terms))
