"""Rows of given inputs in one gradient below a linear output layer: by their zeros, and by their values.

There, the row of an input is a combination of the output weights of the units that it turns on, with one coefficient
per output. So *every* unit whose gate is known gives one equation for the row and the coefficients, where zeros alone
give equations for the units that are off. Of one gradient of 128 MNIST images in 1 000 units, the changes of 64 single
units as inputs (the 257th smallest and those that follow) give 27 different rows in this way, and 11 by zeros.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.rows import robust_normals
from exhume.core.devices import numbers_at_once
from exhume.core.progress import Tick, no_tick


def have_values(problem: RowProblem) -> bool:
    """Return whether rows are determined by values: below a linear output layer, with more units than unknowns."""
    readout = problem.readout
    return readout is not None and 2 * (problem.rank + len(readout)) <= problem.units // 2


def rows_by_values(
    problem: RowProblem, codes: Float[Tensor, "candidate rank"], tick: Tick = no_tick
) -> Float[Tensor, "candidate rank"]:
    """Find the row of each input from the units whose gates are most certain; the scale of an input does not matter.

    ``tick`` is called between steps; it may raise to stop.
    """
    if len(codes) == 0:
        return codes
    margins = codes @ problem.gates[1].T
    units = _certain_units(problem, margins)
    size = max(1, numbers_at_once(codes.device) // (units.shape[1] * 2 * problem.rank))
    parts = zip(torch.split(margins > 0, size), torch.split(units, size), strict=True)
    rows = torch.cat([_solve(problem, is_on, chosen, tick) for is_on, chosen in parts])
    length: Tensor = rows.norm(dim=1, keepdim=True)
    return rows / length


def _solve(
    problem: RowProblem, is_on: Bool[Tensor, "candidate unit"], units: Int[Tensor, "candidate chosen"], tick: Tick
) -> Float[Tensor, "candidate rank"]:
    assert problem.readout is not None
    # Of the same size as the rows, so that coefficients are of the size of a row's coordinates.
    readout = problem.readout.T * (problem.rows.norm() / problem.readout.norm())
    values = readout[units] * is_on.gather(1, units)[..., None]
    lengths = problem.rows.norm(dim=0).clamp(min=1e-300)[units]
    columns = torch.cat([problem.rows.T[units], -values], dim=2) / lengths[..., None]
    # Gates do not move in one gradient, so that polishing does the rest.
    narrowest = problem.certificate.widest_zero
    return robust_normals(problem, columns, units, narrowest=narrowest, tick=tick)[:, : problem.rank]


def _certain_units(problem: RowProblem, margins: Float[Tensor, "candidate unit"]) -> Int[Tensor, "candidate chosen"]:
    """Return the units whose gates are most certain, the same share of those that are on and of those that are off.

    A unit that moved little was fired by few inputs, so that it is more certainly off. Half of the gates are believed;
    measured with 0.3 to 0.8 of them, 0.4 to 0.6 find most.
    """
    informative, is_off = problem.informative.bool(), margins < 0
    off = margins.abs() / problem.movement.clamp(min=1e-150)
    on = margins / problem.after.norm(dim=1).clamp(min=1e-300)
    order = torch.where(is_off, _quantiles(off, is_off & informative), _quantiles(on, ~is_off & informative))
    return order.topk(problem.units // 2, dim=1, largest=False).indices


def _quantiles(
    scores: Float[Tensor, "candidate unit"], counted: Bool[Tensor, "candidate unit"]
) -> Float[Tensor, "candidate unit"]:
    """Return which share of the counted units have higher scores; infinity for units that are not counted."""
    places = scores.masked_fill(~counted, -torch.inf).argsort(dim=1, descending=True).argsort(dim=1)
    return (places / counted.sum(dim=1, keepdim=True).clamp(min=1)).to(scores).masked_fill(~counted, torch.inf)
