"""Explain columns by known inputs and their output gradients, and find further inputs in what is left.

An input ``x`` adds ``(w_u · p) x`` to the column of every unit ``u`` that it takes part in, with the output weights
``w_u`` of the unit and one gradient ``p`` with respect to the outputs. So an input whose gradient is fitted to some of
its columns is known in all of them, and can be subtracted. What two columns are left with alone is a further input.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.gates.participants import POWER, Columns
from exhume.core.least_squares import solve_least_squares
from exhume.core.progress import Tick, no_tick

REFINEMENTS = 3
"""Number of times per round that gradients and inputs are fitted in turn; converges."""
WEIGHTINGS = 12
"""Number of weighted fits in a robust fit; each is 0.4 times as wide as the one before, down to the noise."""


def add_inputs(columns: Columns, codes: Float[Tensor, "input rank"], tick: Tick = no_tick) -> Float[Tensor, "all rank"]:
    """Return known inputs, fitted together, and those that are found in what they leave of the columns.

    ``tick`` is called between steps; it may raise to stop.
    """
    left = columns.changes
    for _ in range(len(left)):
        new = _agreeing(columns, left, codes)
        if len(codes) + len(new) == 0:
            return codes
        codes, left = _fit(columns, torch.cat([codes, new]), left, tick)
        if len(new) == 0:
            return codes
    return codes


def _agreeing(
    columns: Columns, left: Float[Tensor, "rank unit"], codes: Float[Tensor, "input rank"]
) -> Float[Tensor, "new rank"]:
    """Return new inputs that two or more columns show alone."""
    size = left.norm(dim=0)
    units = (size > columns.firm).nonzero()[:, 0]
    shown = (left[:, units] / (columns.constant @ left[:, units])).T
    shown, units = (kept[shown.isfinite().all(dim=1)] for kept in (shown, units))
    takes_part = (shown * columns.gates[units]).sum(dim=1) > 0
    is_possible = takes_part & columns.is_possible(shown)
    shown, noise = shown[is_possible], (columns.noise / size[units])[is_possible]
    distances = torch.cdist(shown, shown) / shown.norm(dim=1)
    for tolerance in (columns.deviations, math.inf):  # wider where noise alone finds nothing
        agrees = distances < (tolerance * (noise[:, None] + noise)).clamp(max=columns.same)
        found, is_free = codes, torch.ones_like(noise, dtype=torch.bool)
        while bool(is_free.any()):
            votes = (agrees & is_free).sum(dim=1) * is_free
            best = int(votes.argmax())
            if int(votes[best]) < 2:
                break
            members = agrees[best] & is_free
            is_free &= ~(agrees[best] | (distances[best] < columns.same))
            weights = noise[members] ** -2
            mean = (shown[members] * weights[:, None]).sum(dim=0, keepdim=True) / weights.sum()
            if len(found) == 0 or float(torch.cdist(mean, found).min()) > columns.same * float(mean.norm()):
                found = torch.cat([found, mean])
        if len(found) > len(codes):
            break
    return found[len(codes) :]


def _fit(
    columns: Columns, codes: Float[Tensor, "input rank"], left: Float[Tensor, "rank unit"], tick: Tick
) -> tuple[Float[Tensor, "input rank"], Float[Tensor, "rank unit"]]:
    """Fit the gradients of inputs and the inputs in turn; return the inputs and what they leave of the columns."""
    for _ in range(REFINEMENTS):
        effects, left = _fit_effects(columns, codes, left, tick)
        weights = _weigh(columns, left).sqrt()
        solved = solve_least_squares((effects * weights).T, (columns.changes * weights).T)
        solved = solved / (solved @ columns.constant)[:, None]
        # A larger correction means that its columns belong to others as well.
        is_near = (solved - codes).norm(dim=1) < columns.same * codes.norm(dim=1)
        codes = torch.where(is_near[:, None], solved, codes)
    return codes, _fit_effects(columns, codes, left, tick)[1]


def _fit_effects(
    columns: Columns, codes: Float[Tensor, "input rank"], left: Float[Tensor, "rank unit"], tick: Tick
) -> tuple[Float[Tensor, "input unit"], Float[Tensor, "rank unit"]]:
    """Fit one gradient per input to as many columns as possible; return the effects and what they leave.

    With the inputs ``x_k`` the normal equations couple gradients by ``(x_k · x_l) Σ_u w_u w_uᵀ``, over the units that
    both take part in; so they cost no more than units times parameters squared.
    """
    outputs = len(columns.signals)
    terms = columns.participation(codes)[:, None] * columns.signals  # input, output, unit
    flat = terms.reshape(-1, terms.shape[2])
    scale = (flat.norm(dim=1) * codes.norm(dim=1).repeat_interleave(outputs)).clamp(min=1e-300)
    coupling = (codes @ codes.T).repeat_interleave(outputs, 0).repeat_interleave(outputs, 1) / scale[:, None] / scale
    wanted = (codes @ columns.changes).repeat_interleave(outputs, 0) * flat / scale[:, None]
    weights, width = _weigh(columns, left), columns.deviations * columns.noise
    effects = codes.new_zeros(len(codes), flat.shape[1])
    for count in range(WEIGHTINGS):
        tick()
        normal = ((flat * weights) @ flat.T) * coupling
        # Inputs with fewer columns than outputs leave gradients open.
        normal = normal + (1e-12 * normal.diagonal().mean() + 1e-300) * torch.eye(len(normal)).to(normal)
        factor, failed = torch.linalg.cholesky_ex(normal)
        if bool(failed):
            break
        solved = torch.cholesky_solve((wanted @ weights)[:, None], factor)[:, 0] / scale
        effects = (solved[:, None] * flat).reshape(terms.shape).sum(dim=1)
        left = columns.changes - codes.T @ effects
        sizes = left.norm(dim=0)
        widest = max(float(sizes.quantile(0.3)) * 0.4**count, width)
        weights = (sizes.square() + widest**2) ** (POWER / 2 - 1)
    return effects, left


def _weigh(columns: Columns, left: Float[Tensor, "rank unit"]) -> Float[Tensor, " unit"]:
    """Return weights with which a few unexplained columns do not spoil a fit.

    Rounding of strong inputs adds to noise, so that a column is explained at several deviations. Measured with true
    inputs: 4 to 7 in the median. Results with 3 and 10 are alike.
    """
    return (left.square().sum(dim=0) + (columns.deviations * columns.noise) ** 2) ** (POWER / 2 - 1)
