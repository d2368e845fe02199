"""Fit to the zeros of a row the input whose gates explain them."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.gates.halfspaces import weighted_gram
from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.zeros import find_zeros
from exhume.core.devices import numbers_at_once
from exhume.core.progress import Tick, no_tick


def fit_codes(
    problem: RowProblem,
    rows: Float[Tensor, "row rank"],
    steps: int = 6,
    ridge: float = 1e-2,
    tick: Tick = no_tick,
) -> Float[Tensor, "row rank"]:
    """Fit an input to the zeros of each row: off at both ends where the row is zero, on at one end elsewhere.

    Logistic regression on the gates, both classes weighed alike, from a least-squares start by Newton steps. At which
    end a unit is on is decided by the current margins. ``tick`` is called before each step; it may raise to stop.
    """
    size = max(1, numbers_at_once(rows.device) // problem.features.numel())
    parts = [_fit(problem, zeros, steps, ridge, tick) for zeros in torch.split(find_zeros(problem, rows), size)]
    return turn_off_zeros(problem, rows, torch.cat(parts)) if parts else rows


def _fit(problem: RowProblem, zeros: Bool[Tensor, "row unit"], steps: int, ridge: float, tick: Tick) -> Tensor:
    # At the same weights, both ends are one; it counts twice.
    ends = 1 if problem.is_local else 2
    features, identity = problem.features[: ends * zeros.shape[1]], torch.eye(problem.rank).to(problem.rows)
    is_zero, is_nonzero = zeros.to(features), (~zeros).to(features) * problem.gated
    weights = is_zero / is_zero.sum(dim=1, keepdim=True).clamp(min=1)
    weights = weights + is_nonzero / is_nonzero.sum(dim=1, keepdim=True).clamp(min=1)
    weights = (0.5 * problem.units * weights).repeat(1, ends)
    labels = is_nonzero.repeat(1, ends)
    gram = weighted_gram(features.T, weights, tick)
    penalty = ridge * gram.diagonal(dim1=1, dim2=2).mean(dim=1).clamp(min=1e-150)[:, None, None] * identity
    codes: Tensor = torch.linalg.solve(gram + penalty, ((2 * labels - 1) * weights @ features)[..., None])[..., 0]
    margins = (codes @ features.T).abs()
    codes = codes * (2 * weights.sum(dim=1) / (margins * weights).sum(dim=1).clamp(min=1e-300))[:, None]
    for _ in range(steps):
        margins = codes @ features.T
        before, after = margins.chunk(2, dim=1) if ends == 2 else (margins, margins)
        at_start = torch.sigmoid(2 * (before - after))
        at_ends = torch.cat([at_start, 1 - at_start], dim=1)[:, : margins.shape[1]]
        share = torch.where(labels > 0, at_ends, 1.0) * weights * (2 / ends)
        on = torch.sigmoid(margins)
        slope = (share * (on - labels)) @ features + 1e-2 * codes
        curvature = (share * on * (1 - on)).clamp(min=2e-3 / ends)
        hessian = weighted_gram(features.T, curvature, tick) + 1e-2 * identity
        step = torch.linalg.solve(hessian, slope[..., None])[..., 0]
        longest = 3 * codes.norm(dim=1, keepdim=True) / step.norm(dim=1, keepdim=True).clamp(min=1e-12)
        codes = codes - step * longest.clamp(max=1)
    return codes


def orient_codes(
    problem: RowProblem, rows: Float[Tensor, "row rank"], codes: Float[Tensor, "row rank"]
) -> Float[Tensor, "row rank"]:
    """Choose the sign of inputs: by their constant, or without a bias so that they are off where their row is zero."""
    if not problem.has_bias:
        return turn_off_zeros(problem, rows, codes)
    return torch.where((codes @ problem.basis[-1])[:, None] < 0, -codes, codes)


def turn_off_zeros(
    problem: RowProblem, rows: Float[Tensor, "row rank"], codes: Float[Tensor, "row rank"]
) -> Float[Tensor, "row rank"]:
    """Choose the sign that turns the units off on which a row is zero.

    A fit to these units knows this sign well, and the constant of a bias badly: of 40 true rows of faces after AdamW,
    8 were refused because the constant of the fitted input had the wrong sign.
    """
    margins = (codes @ problem.features.T) * find_zeros(problem, rows).repeat(1, 2)
    return torch.where(margins.sum(dim=1, keepdim=True) > 0, -codes, codes)


def count_contradictions(
    problem: RowProblem, rows: Float[Tensor, "row rank"], codes: Float[Tensor, "row rank"]
) -> Float[Tensor, " row"]:
    """Count the units on which a row is zero although its input turns them on before and after training."""
    before, after = (codes @ gate.T for gate in problem.gates)
    return (find_zeros(problem, rows) & (before > 0) & (after > 0)).sum(dim=1).to(rows)
