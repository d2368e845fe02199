"""Peel inputs off one gradient: a unit that one input alone fired has moved in the direction of this input.

Once an input is known, so are its gates, and its row is the vector that is zero on all units that it leaves off. What
both explain of the gradient is subtracted, which leaves further units to single inputs, as an LT code is decoded (Luby
2002). Gates must be known exactly: one gradient, or several at known weights, and a bias, which tells the scale of an
input.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.gates.firing import ROUNDING
from exhume.attacks.gates.halfspaces import weighted_gram
from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.rows import are_same, towards_lowest
from exhume.core.devices import numbers_at_once

VISIBLE = 20.0
"""Size of what is left of a unit's change, relative to its error, from which on it may show an input."""
COARSEST = 0.02
"""Largest error of an input that is read off a unit, relative to its constant."""
DETERMINED = 1e4
"""Least ratio of the second-lowest eigenvalue to the lowest at which zeros determine one row and not two."""
CHANGED = 1e-6
"""Relative change of what is left of a unit from which on it is tried again."""


class Candidates(NamedTuple):
    """Inputs that single units may show, with the rows that vanish where they leave units off."""

    codes: Float[Tensor, "candidate rank"]
    precision: Float[Tensor, " candidate"]
    """Size of the error of each input."""
    rows: Float[Tensor, "candidate rank"]


def can_peel(problem: RowProblem) -> bool:
    """Return whether gates are known exactly and inputs have a constant."""
    return problem.gates_are_exact and problem.has_bias and problem.forms is None


def peel(problem: RowProblem) -> Float[Tensor, "found rank"]:
    """Return the rows of all inputs that units show alone, at first or after others were subtracted."""
    left = problem.strengths[:, None] * problem.rows
    error = torch.full_like(left[0], problem.noise * math.sqrt(problem.rank))
    tried = torch.zeros_like(error)
    found = left.new_zeros(0, problem.rank)
    while len(found) < problem.rank:
        size = left.norm(dim=0)
        is_new = ((size - tried).abs() > CHANGED * size) & _may_show_inputs(problem, left, error)
        tried = torch.where(is_new, size, tried)
        new = _keep_single_inputs(problem, _read_candidates(problem, left[:, is_new], error[is_new]), found)
        if len(new.rows) == 0:
            break
        effects, noise = _scale_effects(problem, new)
        left = left - new.codes.T @ effects
        # An input is off by its precision, and its effects by noise.
        error = error.square() + new.precision.square() @ effects.square() + noise.square().sum(dim=0)
        error = error.sqrt()
        found = torch.cat([found, new.rows])
    return found


def _may_show_inputs(
    problem: RowProblem, left: Float[Tensor, "rank unit"], error: Float[Tensor, " unit"]
) -> Bool[Tensor, " unit"]:
    """Return which units may show a single input: one in the range of inputs, that fires the unit."""
    constants = problem.basis[-1] @ left
    is_visible = (left.norm(dim=0) > VISIBLE * error) & (error < COARSEST * constants.abs()) & problem.informative.bool()
    codes = (left / constants).T
    fires = (problem.gates[0] * codes).sum(dim=1) > 0
    is_inside = torch.ones_like(fires) if problem.box is None else (codes @ problem.box.T > 0).all(dim=1)
    return is_visible & fires & is_inside


def _read_candidates(
    problem: RowProblem, left: Float[Tensor, "rank unit"], error: Float[Tensor, " unit"]
) -> Candidates:
    """Read inputs off units, and find the rows that vanish on all units that they certainly leave off."""
    constants = problem.basis[-1] @ left
    codes, precision = (left / constants).T, error / constants.abs()
    chunk = max(1, numbers_at_once(codes.device) // (problem.rank**2 + problem.rows.numel()))
    rows = [codes[:0]]
    for at in range(0, len(codes), chunk):
        is_off = _certainly_off(problem, codes[at : at + chunk], precision[at : at + chunk])
        start = torch.full((len(is_off), problem.rank), problem.rank**-0.5).to(codes)
        rows.append(towards_lowest(weighted_gram(problem.rows, is_off.to(codes)), start, 4))
    return Candidates(codes, precision, torch.cat(rows))


def _certainly_off(
    problem: RowProblem, codes: Float[Tensor, "candidate rank"], precision: Float[Tensor, " candidate"]
) -> Bool[Tensor, "candidate unit"]:
    """Return the units that inputs leave off, however their error and rounding move them."""
    gates, deviations = problem.gates[0], problem.certificate.zero_width
    reach = deviations * precision + ROUNDING * codes.norm(dim=1)
    return (codes @ gates.T < -reach[:, None] * gates.norm(dim=1)) & problem.informative.bool()


def _keep_single_inputs(
    problem: RowProblem, candidates: Candidates, found: Float[Tensor, "row rank"]
) -> Candidates:
    """Keep new inputs whose rows are zero up to noise on all units that they leave off; the most precise of each."""
    codes, precision, rows = candidates
    is_off = _certainly_off(problem, codes, precision)
    width = problem.certificate.zero_width * problem.noise_width(rows)[:, None]
    is_nonzero = problem.normalise(rows).abs() > width
    misfits = (is_nonzero & is_off).sum(dim=1)
    is_row = (misfits <= problem.certificate.forgiven_contradictions) & (is_off.sum(dim=1) >= problem.rank)
    is_row &= ~are_same(problem, rows, found).any(dim=1)
    chosen = is_row.nonzero()[:, 0]
    kept: list[int] = []
    for index in chosen[precision[chosen].argsort()].tolist():
        if kept and bool(are_same(problem, rows[index : index + 1], rows[kept]).any()):
            continue
        columns = problem.rows[:, is_off[index]]
        values = torch.linalg.eigvalsh(columns @ columns.T)
        if float(values[1]) > DETERMINED * max(float(values[0]), 1e-15 * float(values[-1])):
            kept.append(index)
    return Candidates(codes[kept], precision[kept], rows[kept])


def _scale_effects(
    problem: RowProblem, inputs: Candidates
) -> tuple[Float[Tensor, "row unit"], Float[Tensor, "row unit"]]:
    """Return the effects of inputs on all units, and the size of their noise."""
    scale = 1 / (inputs.rows / problem.strengths * inputs.codes).sum(dim=1, keepdim=True)
    is_on = (inputs.codes @ problem.gates[0].T > 0).to(inputs.rows)
    noise = problem.noise * (inputs.rows / problem.strengths).norm(dim=1, keepdim=True) * scale.abs()
    return scale * (inputs.rows @ problem.rows) * is_on, noise * inputs.codes.norm(dim=1, keepdim=True) * is_on
