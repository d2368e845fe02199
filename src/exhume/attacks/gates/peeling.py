"""Peel inputs off one gradient: a unit that one input alone fired has moved in the direction of this input.

Once an input is known, so are its gates, and its row is the vector that is zero on all units that it leaves off. What
both explain of the gradient is subtracted, which leaves further units to single inputs, as an LT code is decoded (Luby
2002). Gates must be known exactly: one gradient, or several at known weights, and a bias, which tells the scale of an
input.

Below a linear output layer, a unit that all inputs fire has moved by ``K w``, with its output weights ``w`` and one
matrix ``K`` for all units. So ``K w`` less the change of any other unit is a sum over the inputs that leave it *off*:
every unit gives two sums, one over the inputs that turn it on and one over the others.
"""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.gates.backprop import explained_share
from exhume.attacks.gates.halfspaces import weighted_gram
from exhume.attacks.gates.participants import fit_robustly
from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.rows import are_same, towards_lowest
from exhume.core.devices import numbers_at_once
from exhume.core.least_squares import solve_least_squares
from exhume.core.progress import Tick, no_tick


@dataclass(frozen=True)
class Sums:
    """Sums over the inputs that turn a unit on, or leave it off, less what is explained already."""

    left: Float[Tensor, "rank sum"]
    error: Float[Tensor, " sum"]
    """Size of the error of each sum."""
    gates: Float[Tensor, "sum rank"]
    """Weights that are positive on the inputs of a sum."""

    @property
    def codes(self) -> Float[Tensor, "sum rank"]:
        """The sums as inputs, not yet divided by their constant."""
        return self.left.T


@dataclass(frozen=True)
class SingleInputs:
    """Inputs that sums show, and the rows that vanish where they leave units off."""

    codes: Float[Tensor, "input rank"]
    precision: Float[Tensor, " input"]
    """Size of the error of each input."""
    rows: Float[Tensor, "input rank"]

    def chosen(self, places: list[int]) -> "SingleInputs":
        """Return some of the inputs."""
        return SingleInputs(self.codes[places], self.precision[places], self.rows[places])

    def joined(self, others: "SingleInputs") -> "SingleInputs":
        """Return these inputs and others."""
        pairs = ((self.codes, others.codes), (self.precision, others.precision), (self.rows, others.rows))
        return SingleInputs(*map(torch.cat, pairs))


def can_peel(problem: RowProblem) -> bool:
    """Return whether gates are known exactly, inputs have a constant, and there are several rows."""
    return problem.gates_are_exact and problem.has_bias and problem.rank > 1


def peel_rows(problem: RowProblem, tick: Tick = no_tick) -> tuple[Float[Tensor, "found rank"], int]:
    """Return the rows of all inputs that sums show alone, at first or after others were subtracted.

    Returns:
        The rows, and the number of candidates that were tested.
    """
    every = _pose_sums(problem)
    sums, found = every, SingleInputs(every.codes[:0], every.error[:0], every.codes[:0])
    last_size, tested = torch.zeros_like(sums.error), 0
    while len(found.rows) < problem.rank:
        tick()
        size = sums.left.norm(dim=0)
        is_new = ((size - last_size).abs() > sums.error) & _may_show_inputs(problem, sums)
        last_size, tested = torch.where(is_new, size, last_size), tested + int(is_new.sum())
        new = _keep_single_inputs(problem, _read_inputs(problem, sums, is_new), found.rows)
        if len(new.rows) == 0:
            break
        found = found.joined(new)
        if len(found.rows) >= problem.rank:
            break
        found = _separate(problem, found)
        sums = _subtract(problem, every, found)
    return found.rows, tested


def _separate(problem: RowProblem, found: SingleInputs) -> SingleInputs:
    """Correct inputs so that each is left open by the rows of the others.

    The sum that showed an input may contain a little of another one with a weak effect. Its row is right all the same,
    since hardly any gate is turned by that; and once the other row is known, so is how much of it there was.
    """
    parts = found.rows @ (found.codes / problem.strengths).T
    codes = torch.linalg.solve(parts.T, found.codes)
    return replace(found, codes=codes / (codes @ problem.basis[-1])[:, None])


def _pose_sums(problem: RowProblem) -> Sums:
    """Return the change of each unit, and below a linear output layer what is left of a unit that all inputs fire."""
    changes, gates = problem.strengths[:, None] * problem.rows, problem.gates[0]
    error = torch.full_like(changes[0], problem.noise * math.sqrt(problem.rank))
    sums, readout = Sums(changes, error, gates), problem.readout
    if readout is None:
        return sums
    # The first direction of the changes is that of the mean input.
    mean = problem.basis[-1, 0].sign() * gates[:, 0] / gates.norm(dim=1).clamp(min=1e-300)
    most = min(problem.search.mostly_on * len(readout), problem.units)
    chosen = mean.masked_fill(~problem.informative.bool(), -torch.inf).topk(most).indices
    matrix, _ = fit_robustly(readout[:, chosen], changes[:, chosen], changes[:, chosen].norm(dim=0))
    is_shared = (changes - matrix @ readout).norm(dim=0) < problem.deviations * error
    if int(is_shared.sum()) < 2 * len(readout):
        return sums
    matrix = solve_least_squares(readout[:, is_shared].T, changes[:, is_shared].T).T
    others = matrix @ readout - changes
    return Sums(torch.cat([changes, others], dim=1), torch.cat([error, 2 * error]), torch.cat([gates, -gates]))


def _may_show_inputs(problem: RowProblem, sums: Sums) -> Bool[Tensor, " sum"]:
    """Return which sums may show a single input: one in the range of inputs, that takes part in the sum."""
    constants = problem.basis[-1] @ sums.left
    is_visible = sums.error < problem.certificate.precision * constants.abs()
    codes = (sums.left / constants).T
    takes_part = (sums.gates * codes).sum(dim=1) > 0
    is_inside = torch.ones_like(takes_part) if problem.box is None else (codes @ problem.box.T > 0).all(dim=1)
    may: Tensor = is_visible & takes_part & is_inside
    return may


def _read_inputs(problem: RowProblem, sums: Sums, chosen: Bool[Tensor, " sum"]) -> SingleInputs:
    """Read inputs off sums, and find the rows that vanish on all units that they certainly leave off."""
    constants = problem.basis[-1] @ sums.left[:, chosen]
    codes, precision = (sums.left[:, chosen] / constants).T, sums.error[chosen] / constants.abs()
    chunk = max(1, numbers_at_once(codes.device) // (problem.rank**2 + problem.rows.numel()))
    rows = [codes[:0]]
    for at in range(0, len(codes), chunk):
        is_off = _certainly_off(problem, codes[at : at + chunk], precision[at : at + chunk])
        start = torch.full((len(is_off), problem.rank), problem.rank**-0.5).to(codes)
        rows.append(towards_lowest(weighted_gram(problem.rows, is_off.to(codes)), start, 4))
    return SingleInputs(codes, precision, torch.cat(rows))


def _certainly_off(
    problem: RowProblem, codes: Float[Tensor, "input rank"], precision: Float[Tensor, " input"]
) -> Bool[Tensor, "input unit"]:
    """Return the units that inputs leave off, however their error and rounding move them."""
    gates = problem.gates[0]
    reach = problem.deviations * precision + problem.rounding * codes.norm(dim=1)
    is_off: Tensor = codes @ gates.T < -reach[:, None] * gates.norm(dim=1)
    return is_off & problem.informative.bool()


def _keep_single_inputs(problem: RowProblem, inputs: SingleInputs, found: Float[Tensor, "row rank"]) -> SingleInputs:
    """Keep new inputs whose rows are zero up to noise on all units that they leave off; the most precise of each."""
    is_off = _certainly_off(problem, inputs.codes, inputs.precision)
    width = problem.deviations * problem.noise_width(inputs.rows)[:, None]
    misfits = ((problem.normalise(inputs.rows).abs() > width) & is_off).sum(dim=1)
    is_row = (misfits <= problem.certificate.allowed_contradictions(problem.units)) & (
        is_off.sum(dim=1) >= problem.rank
    )
    is_row &= ~are_same(problem, inputs.rows, found).any(dim=1)
    if problem.has_known_values:
        chunk = max(1, numbers_at_once(is_row.device) // (problem.rows.shape[1] * 2 * problem.rank))
        for some in torch.split(is_row.nonzero()[:, 0], chunk):
            if len(some):
                is_row[some] = (
                    explained_share(problem, inputs.rows[some], inputs.codes[some])
                    > problem.search.least_explained_exactly
                )
    chosen, kept = is_row.nonzero()[:, 0], list[int]()
    for place in chosen[inputs.precision[chosen].argsort()].tolist():
        if kept and bool(are_same(problem, inputs.rows[place : place + 1], inputs.rows[kept]).any()):
            continue
        columns = problem.rows[:, is_off[place]]
        values = torch.linalg.eigvalsh(columns @ columns.T)
        # What moves the lowest direction towards the next one moves the row by less than the precision.
        noise = max(float(values[0]), torch.finfo(values.dtype).eps * float(values[-1]))
        if noise < problem.certificate.precision**2 * float(values[1]):
            kept.append(place)
    return inputs.chosen(kept)


def _subtract(problem: RowProblem, sums: Sums, inputs: SingleInputs) -> Sums:
    """Return what inputs leave of all sums.

    For the changes of units, with the inputs ``C`` and their scaled rows ``U``, this is ``(I − CᵀU S⁻¹)`` times the
    sums, and so is its noise: it lies in the span of the missing inputs, whatever the errors of the inputs are. Effects
    on sums over the inputs that leave a unit off are predicted by one coefficient per output.
    """
    scale = 1 / (inputs.rows / problem.strengths * inputs.codes).sum(dim=1, keepdim=True)
    effects = _effects(problem, sums, inputs, scale)
    projector = inputs.codes.T @ (scale * inputs.rows / problem.strengths)
    amplified = float((torch.eye(problem.rank).to(projector) - projector).norm()) / math.sqrt(problem.rank)
    return replace(sums, left=sums.left - inputs.codes.T @ effects, error=max(amplified, 1.0) * sums.error)


def _effects(
    problem: RowProblem, sums: Sums, inputs: SingleInputs, scale: Float[Tensor, "input 1"]
) -> Float[Tensor, "input sum"]:
    """Return how much of each input is in each sum."""
    effects = scale * (inputs.rows @ problem.rows)
    if len(sums.error) == effects.shape[1]:
        return effects
    # One coefficient per output explains the effects on units that are on, and what those would be that are off.
    readout = problem.readout
    assert readout is not None
    on = (inputs.codes @ problem.gates[0].T > 0).to(effects)
    known = on * problem.informative
    grams = weighted_gram(readout, known)
    ridge = (
        1e-12
        * grams.diagonal(dim1=1, dim2=2).mean(dim=1).clamp(min=1e-280)[:, None, None]
        * torch.eye(len(readout)).to(grams)
    )
    coefficients = torch.linalg.solve(grams + ridge, (effects * known @ readout.T)[..., None])[..., 0]
    return torch.cat([effects, (coefficients @ readout) * (1 - on)], dim=1)
