"""Tell the row of one input from a sum of rows.

Where more inputs trained a layer than its change has directions, the rows that are found are sums, and each is read as
the row of an average of its inputs. Zeros do not give a sum away, because the average leaves off what all of its parts
leave off. Two laws do:

- *Values.* In one gradient, the row of an input is a combination of the backward signals of the outputs at this input,
  exactly, whatever the loss is. There are few outputs and many units, so a sum of two rows is no such combination.
- *Gates.* The row of one input is zero on the units that the input leaves off, except for units so close to firing that
  they fired in mid-training. A sum is not zero where a part of the average is on, however far the average is from it.

The first law needs signals that can be computed again; the second holds for every sum of gradients.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from scipy.stats import poisson
from torch import Tensor

from exhume.attacks.gates.firing import firing_probability
from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.zeros import zero_width
from exhume.core.chance import bound_log_tail, log_choices
from exhume.core.progress import Tick, no_tick


@dataclass(frozen=True, kw_only=True)
class Explained:
    """How well backward signals explain rows, and how well they tell each row from all others."""

    unexplained: Float[Tensor, " row"]
    """The part of each row that is no combination of the backward signals at its input; infinite without numbers."""
    separation: Float[Tensor, " row"]
    """The least part that these signals leave unexplained of any combination of the other rows. What is mixed into a
    row without being noticed is at most what is unexplained of it, divided by this."""
    log_p: Float[Tensor, " row"]
    """Bound on the log probability that signals explain as many units of a generic vector of the row space."""


def explain_rows(
    problem: RowProblem,
    rows: Float[Tensor, "row rank"],
    inputs: Float[Tensor, "row value"],
    tick: Tick = no_tick,
) -> Explained:
    """Explain each row by the backward signals at its input, in one gradient or several at known weights.

    Units whose gates rounding may turn are left out. A vector of the row space and one coefficient per output can be
    chosen so that as many units are explained as there are free numbers. Each further unit is a coincidence.
    ``tick`` is called before each row; it may raise to stop.
    """
    every = problem.normalise(rows) * problem.informative / problem.units**0.5
    width = zero_width(problem, rows)[:, 0]
    counts = torch.zeros(4, len(rows), dtype=torch.float64)  # of each row, as described below
    margins = (inputs @ problem.before.T).nan_to_num()
    least = problem.rounding * inputs.norm(dim=1, keepdim=True) * problem.before.norm(dim=1)
    unexplained, separation = rows.new_full((2, len(rows)), torch.inf)
    for row in inputs.isfinite().all(dim=1).nonzero()[:, 0].tolist():
        tick()
        is_sure = margins[row].abs() > least[row]
        signals = problem.signals[0](margins[row : row + 1])[0]
        rest = _remove_signals(problem, every * is_sure, signals * is_sure)
        unexplained[row] = rest[row].norm()
        counted = is_sure & problem.informative.bool()
        size, free = rest[row][counted].abs() * problem.units**0.5, problem.rank - 1 + problem.blocks * len(signals)
        if len(size):  # entries that are on are noisier than zeros, so their own scatter counts
            scatter = size.median() / 0.6745
            widest = width[row].clamp(min=problem.certificate.widest_zero)
            width[row] = torch.minimum((problem.deviations * scatter).maximum(width[row]), widest)
        fits, near = size <= width[row], (size > width[row]) & (size <= 2 * width[row])
        counts[:, row] = torch.tensor([fits.sum(), len(size), free, near.sum()])
        others = torch.cat([rest[:row], rest[row + 1 :]])
        if len(others):
            separation[row] = torch.linalg.eigvalsh(others @ others.T)[0].clamp(min=0).sqrt()
    return Explained(unexplained=unexplained, separation=separation, log_p=_log_p_explained(counts, width))


def _log_p_explained(counts: Float[Tensor, "4 row"], width: Float[Tensor, " row"]) -> Float[Tensor, " row"]:
    """Bound the log probability of so many explained units, by the union bound over those that can be forced.

    The chance that an entry lies within the width of a zero is the larger of that of a normal variable and of the
    density that is measured just above, with one entry added.

    Args:
        counts: for each row the number of explained units, of all units, of numbers that can be chosen, and of units
            in a band above the zeros that is as wide as they are.
        width: the width of a zero.
    """
    explained, units, free, near = counts
    units, free = units.clamp(min=1), torch.minimum(free, units)
    chance = torch.erf(width.double().cpu() / 2**0.5).maximum((near + 1) / units).clamp(max=1 - 1e-9)
    beyond, others = (explained - free).clamp(min=0), (units - free).clamp(min=1)
    tail = torch.as_tensor(bound_log_tail(beyond.numpy(), others.numpy(), chance.numpy()))
    choices = torch.tensor([log_choices(int(n), int(k)) for n, k in zip(units, free, strict=True)])
    return (tail + choices).clamp(max=0.0)


def _remove_signals(
    problem: RowProblem, entries: Float[Tensor, "row unit"], signals: Float[Tensor, "output unit"]
) -> Float[Tensor, "row unit"]:
    """Return what is left of rows outside the span of signals; every one of several gradients has its own span."""
    left = []
    for block, part in zip(signals.chunk(problem.blocks, dim=1), entries.chunk(problem.blocks, dim=1), strict=True):
        scaled = block / block.norm(dim=1, keepdim=True).clamp(min=1e-300)
        _, strengths, directions = torch.linalg.svd(scaled, full_matrices=False)
        directions = directions[strengths > 1e-9 * strengths[:1]]
        left.append(part - part @ directions.T @ directions)
    return torch.cat(left, dim=1)


@dataclass(frozen=True, kw_only=True)
class OffUnits:
    """The units that inputs leave off, and what is expected of them."""

    is_off: Bool[Tensor, "row unit"]
    """Informative units that the input leaves off at both ends."""
    is_nonzero: Bool[Tensor, "row unit"]
    """Units on which the row is clearly not zero."""
    firing: Float[Tensor, "row unit"]
    """Probability that the unit fired in mid-training."""
    mixing: Float[Tensor, "row unit"]
    """Probability that a part of the input turns the unit on, if the row is a sum."""

    def pool(self, chosen: Bool[Tensor, " row"]) -> "OffUnits":
        """Return the units of the chosen rows as those of a single row."""
        parts = (self.is_off, self.is_nonzero, self.firing, self.mixing)
        is_off, is_nonzero, firing, mixing = (part[chosen].reshape(1, -1) for part in parts)
        return OffUnits(is_off=is_off, is_nonzero=is_nonzero, firing=firing, mixing=mixing)


def measure_off_units(
    problem: RowProblem,
    rows: Float[Tensor, "row rank"],
    inputs: Float[Tensor, "row value"],
    tick: Tick = no_tick,
) -> OffUnits:
    """Return the units that inputs leave off, what rows have there, and what is expected of one input or of sums.

    ``tick`` is called before each row; it may raise to stop.
    """
    before, after = inputs @ problem.before.T, inputs @ problem.after.T
    is_off = (before < 0) & (after < 0) & problem.gated.bool()
    return OffUnits(
        is_off=is_off,
        is_nonzero=problem.normalise(rows).abs() > zero_width(problem, rows).clamp(min=problem.certificate.clear_entry),
        firing=firing_probability(problem, before, after, inputs.norm(dim=1)),
        mixing=_mixing(before, after, tick),
    )


def _mixing(
    before: Float[Tensor, "row unit"], after: Float[Tensor, "row unit"], tick: Tick
) -> Float[Tensor, "row unit"]:
    """Return how likely each unit is on for a part of each input, if it is the average of two.

    The two lie half the difference to another input away from their average, on both sides; this input is drawn from
    all others. Inputs that are averages themselves are closer to each other than their parts, which errs on the safe
    side: fewer units are then expected to give a sum away. Of ``n`` others, none is certain to turn a unit on: one more
    might not.
    """
    others = max(len(before) - 1, 1)
    mixing = torch.zeros_like(before)
    for row in range(len(before)):
        tick()
        is_on = torch.zeros_like(before, dtype=torch.bool)
        for margins in (before, after):
            halfway = (margins - margins[row]) / 2
            is_on |= (margins[row] + halfway > 0) | (margins[row] - halfway > 0)
        is_on[row] = False  # it is no other input
        mixing[row] = is_on.to(before).sum(dim=0) / others
    return mixing.clamp(max=others / (others + 1))


def log_p_one(units: OffUnits, misjudged: float = 1.0) -> Float[Tensor, " row"]:
    """Return the log probability that as many units fired in mid-training as each row says, if it is that of one input.

    ``misjudged`` times as many units may fire as expected.

    Units are counted from the farthest on, up to the distance at which their number surprises most; the union bound
    accounts for the choice.
    """
    order = units.firing.masked_fill(~units.is_off, torch.inf).argsort(dim=1)
    is_off = units.is_off.gather(1, order)
    fired = (units.is_nonzero.gather(1, order) & is_off).cumsum(dim=1)
    expected = misjudged * (units.firing.gather(1, order) * is_off).cumsum(dim=1)
    tails = poisson.logsf(fired.cpu().numpy() - 1, expected.clamp(min=1e-300).cpu().numpy())
    lowest = torch.as_tensor(tails, dtype=torch.float64).amin(dim=1) if tails.shape[1] else torch.zeros(len(order))
    return (lowest + units.is_off.sum(dim=1).clamp(min=1).double().log().cpu()).clamp(max=0.0)


def log_odds_one(units: OffUnits) -> Float[Tensor, " row"]:
    """Return the log of how much likelier each row is if it belongs to one input than if it is a sum of two rows.

    A sum has odds above ``1/p`` with a probability of at most ``p`` (Markov's inequality).
    """
    either = 1 - (1 - units.firing) * (1 - units.mixing)
    odds = torch.where(units.is_nonzero, torch.log(units.firing / either), -torch.log1p(-units.mixing))
    return (odds * units.is_off).sum(dim=1).double().cpu()
