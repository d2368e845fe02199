"""Decide which inputs are proven, and state why the others are not.

The input of a row is read out as the vector that all *other* rows leave open. It is right if and only if the other rows
span what the other true rows span. So a wrong row does local harm: if row ``j`` is a mixture that contains the true row
``l``, the input of ``l`` moves by a multiple of the input of ``j``, and no other input moves. What can be mixed into a
row is limited by its zeros, because a mixture is zero only where all of its parts are.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

import torch
from jaxtyping import Bool, Float
from scipy.stats import poisson
from torch import Tensor

from exhume.attacks.gates.check import CheckedRows
from exhume.attacks.gates.mixing import has_decayed, may_contain
from exhume.attacks.gates.precision import Families, input_errors
from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.sums import Explained, log_odds_one, log_p_one, measure_off_units
from exhume.attacks.gates.zeros import find_zeros, zero_width
from exhume.core.least_squares import solve_least_squares
from exhume.core.progress import Tick, no_tick


class Doubt(StrEnum):
    """Why an input is not certified; the first reason that applies."""

    NONE = ""
    MISSING_ROWS = "it depends on rows that were not found"
    CHANCE = "chance may explain its row"
    GATES = "its gates contradict its row"
    SUM = "its row may be a sum of the rows of several inputs"
    NEAR_DUPLICATE = "its row and that of a near-duplicate may be mixed"
    HIDDEN = "a nearly equal input may be hidden in it"
    VARIED = "all rows together fire units that their inputs leave off, as where inputs vary between steps"
    NOISE = "the noise of the weights leaves it too imprecise"
    RANGE = "it lies outside the range of inputs, or its scale is not determined"
    FEATURES = "it is a feature outside the range of features, or of layers that leave the range open"
    MOVED = "the layers below moved while the gradients were summed, so it is an average of features"
    TIME = "the time was spent before it could be judged"


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What is proven about the inputs of rows."""

    doubts: list[Doubt]
    """One per input; :attr:`Doubt.NONE` where it is proven."""
    errors: Float[Tensor, " row"]
    """Bound on the error of the values of each input; infinite where rows are missing."""

    @classmethod
    def unjudged(cls, rows: Float[Tensor, "row rank"]) -> "Certificate":
        """Return the certificate of rows that there was no time to judge, which proves nothing."""
        return cls(doubts=[Doubt.TIME] * len(rows), errors=torch.full((len(rows),), torch.inf).to(rows))

    def with_doubt(self, doubt: Doubt, where: Bool[Tensor, " row"]) -> "Certificate":
        """Return the certificate with one more reason for doubt; reasons that were there already stay."""
        pairs = zip(self.doubts, where.tolist(), strict=True)
        return Certificate(doubts=[doubt if hit and not old else old for old, hit in pairs], errors=self.errors)

    @property
    def is_certified(self) -> Bool[Tensor, " row"]:
        """Which inputs are proven."""
        return torch.tensor([not doubt for doubt in self.doubts], dtype=torch.bool)


def certify(
    problem: RowProblem,
    checked: CheckedRows,
    log_p: Float[Tensor, " row"],
    scale: Float[Tensor, "row 1"] | float,
    families: Families | None = None,
    explained: Explained | None = None,
    tick: Tick = no_tick,
) -> Certificate:
    """Decide which inputs are proven.

    Args:
        problem: what the rows are rows of.
        checked: the rows and their inputs.
        log_p: log p-values of the rows, corrected for the number of rows that were tried.
        scale: what inputs are multiplied by, where the layer has no bias.
        families: sets of rows of which only the span bounds the inputs of other rows; None: there are none.
        explained: how well backward signals explain the rows, where values follow from inputs.
        tick: called between steps; may raise to stop.
    """
    rows = checked.rows
    errors = torch.full((len(rows),), torch.inf).to(rows)
    certificate = Certificate(doubts=[Doubt.NONE] * len(rows), errors=errors)
    if not checked.is_complete:
        return certificate.with_doubt(Doubt.MISSING_ROWS, errors > 0)
    errors = (input_errors(problem, rows, families, tick)[:, None] * scale)[:, 0]
    codes = checked.inputs @ problem.basis
    certificate = Certificate(doubts=certificate.doubts, errors=errors)
    certificate = certificate.with_doubt(Doubt.CHANCE, log_p >= math.log(problem.certificate.error_rate))
    certificate = certificate.with_doubt(Doubt.GATES, ~checked.is_exact)
    parts = may_contain(problem, rows, codes, is_strict=True, tick=tick)
    certificate = certificate.with_doubt(Doubt.SUM, ~are_clean(problem, rows))
    if explained is not None:
        certificate, is_noticed = doubt_values(certificate, problem, rows, explained)
        is_mixed = (parts & ~is_noticed).any(dim=0)
    else:
        certificate = doubt_sums(certificate, problem, rows, checked.inputs * scale, tick)
        # The true row behind a mixture is unknown, and so is which other rows contain it.
        is_mixed = parts.any(dim=0) | parts.any(dim=1)
    certificate = certificate.with_doubt(Doubt.NEAR_DUPLICATE, is_mixed)
    certificate = certificate.with_doubt(Doubt.HIDDEN, may_hide(problem, rows, tick))
    if explained is None:
        suspects = may_leave_traces(problem, rows, checked.inputs * scale, parts, tick)
        certificate = certificate.with_doubt(Doubt.HIDDEN, suspects)
    return certificate.with_doubt(Doubt.NOISE, ~(errors <= problem.certificate.precision))


def doubt_values(
    certificate: Certificate, problem: RowProblem, rows: Float[Tensor, "rank rank"], explained: Explained
) -> tuple[Certificate, Bool[Tensor, "row row"]]:
    """Add the doubt that a row is a sum of rows in one gradient, where its values decide.

    Returns:
        The certificate, and for each row which others would be noticed in it: all parts that move their input by more
        than the precision. A part of row ``k`` moves the input of the part by as much of the input of ``k``, times
        the ratio of their effects.
    """
    rules = problem.certificate
    noise = rules.clean * problem.noise_width(rows)
    certificate = certificate.with_doubt(Doubt.SUM, ~(explained.unexplained <= noise.clamp(min=rules.widest_zero)))
    effects = torch.linalg.inv(rows).norm(dim=0) * rows.norm(dim=1)
    unnoticed = torch.maximum(explained.unexplained, noise) / explained.separation * effects
    # Two nearly equal inputs leave traces in other rows, far smaller than what their average is wrong by.
    is_noticed: Tensor = (unnoticed[:, None] / effects <= rules.precision) & are_clean(problem, rows)[:, None]
    return certificate, is_noticed


def doubt_sums(
    certificate: Certificate,
    problem: RowProblem,
    rows: Float[Tensor, "row rank"],
    inputs: Float[Tensor, "row value"],
    tick: Tick = no_tick,
) -> Certificate:
    """Add the doubt that a row is a sum of rows: refuted as that of one input, or not refuted as a sum.

    What no row refutes alone, all rows without a doubt may refute together; a small error of the law does not.
    """
    rules = problem.certificate
    units, limit = measure_off_units(problem, rows, inputs, tick), math.log(rules.error_rate / len(rows))
    is_one, is_no_sum = log_p_one(units) > limit, log_odds_one(units) > -limit
    # Squares do not cancel: where they show all gradients in the span of the rows' inputs, none is hidden in another.
    may_be_sum = len(rows) > 1 and problem.forms is None
    certificate = certificate.with_doubt(Doubt.SUM, ~is_one | (~is_no_sum & may_be_sum))
    others = certificate.is_certified
    together = units.pool(others.to(rows.device))
    is_refuted = bool(others.any()) and float(log_p_one(together, rules.misjudged)) < math.log(rules.error_rate)
    return certificate.with_doubt(Doubt.VARIED, others & is_refuted)


def are_clean(problem: RowProblem, rows: Float[Tensor, "row rank"]) -> Bool[Tensor, " row"]:
    """Return which rows have zeros that scatter as noise does; all of an optimiser's state, where they need not."""
    if has_decayed(problem):
        return torch.ones(len(rows), dtype=torch.bool, device=rows.device)
    sizes, zeros = problem.normalise(rows).square(), find_zeros(problem, rows)
    scatter = ((sizes * zeros).sum(dim=1) / zeros.sum(dim=1).clamp(min=1)).sqrt()
    return scatter <= problem.certificate.clean * problem.noise_width(rows)


def may_leave_traces(
    problem: RowProblem,
    rows: Float[Tensor, "row rank"],
    inputs: Float[Tensor, "row value"],
    parts: Bool[Tensor, "row row"],
    tick: Tick = no_tick,
) -> Bool[Tensor, " row"]:
    """Return which rows may have left traces in others, at units that these should not have fired.

    The row of the average of two nearly equal inputs has the zeros of one input. But all rows together span what all
    inputs span, so the difference of the two is in some other row: it has entries at units that its own input leaves
    off and the two turn on. In a training or a round, every row that fired more units than one input can (Poisson
    tail, at twice the expected rate) casts doubt on all rows that are nonzero at more of these units than it should
    have fired, unless rows that it may contain (``parts``) explain all of them. In an optimiser's state, where the law
    of firing is less sure, few such entries suffice, and the suspects are nonzero at all of them.
    """
    units, rules = measure_off_units(problem, rows, inputs, tick), problem.certificate
    is_nonzero = problem.normalise(rows).abs() > zero_width(problem, rows)
    is_unlikely = units.is_off & (units.firing < rules.unlikely)
    strange = (is_unlikely & is_nonzero).to(rows)
    expected = (units.firing * is_unlikely).to(rows)
    if has_decayed(problem):
        tail = poisson.sf(strange.sum(dim=1).cpu().numpy() - 1, expected.sum(dim=1).cpu().numpy())
        has_many = tail < rules.unlikely
        is_suspect = strange @ (~is_nonzero).to(rows).T == 0
    else:
        limit = math.log(rules.error_rate / len(rows))
        has_many = (log_p_one(units, rules.misjudged) < limit).numpy()
        shared, usual = (counts @ is_nonzero.to(rows).T for counts in (strange, rules.misjudged * expected))
        tail = poisson.logsf(shared.cpu().numpy() - 1, usual.clamp(min=1e-300).cpu().numpy())
        is_suspect = torch.as_tensor(tail < limit, device=rows.device)
        is_sound = ~torch.as_tensor(has_many, device=rows.device)
        for row in has_many.nonzero()[0].tolist():
            tick()
            has_many[row] = not _explain_traces(problem, rows, row, parts[row] & is_sound, strange[row].bool())
    is_suspect = is_suspect & torch.as_tensor(has_many, device=rows.device)[:, None]
    return is_suspect.fill_diagonal_(False).any(dim=0)


def _explain_traces(
    problem: RowProblem,
    rows: Float[Tensor, "row rank"],
    row: int,
    others: Bool[Tensor, " row"],
    units: Bool[Tensor, " unit"],
) -> bool:
    """Return whether other rows explain the entries of a row at some units, at least twice as many as these rows."""
    if not 0 < 2 * int(others.sum()) <= int(units.sum()):
        return False
    entries, width = problem.normalise(rows)[:, units], zero_width(problem, rows)[:, 0]
    solved = solve_least_squares(entries[others].T, entries[row][:, None])[:, 0]
    left = (entries[row] - solved @ entries[others]).abs().max()
    return bool(left <= width[row] + (solved.abs() * width[others]).sum())


def may_hide(problem: RowProblem, rows: Float[Tensor, "row rank"], tick: Tick = no_tick) -> Bool[Tensor, " row"]:
    """Return which rows may be sums of two inputs that are so similar that the rank does not show both.

    Their difference then lies beyond the rank, above noise, and is zero where the row is. Directions that have nothing
    to do with a row have as much of their size on its zeros as on other units.
    """
    if problem.hidden is None:
        return torch.zeros(len(rows), dtype=torch.bool)
    is_hiding = []
    for zeros in find_zeros(problem, rows):
        tick()
        part = problem.hidden[:, zeros[: problem.hidden.shape[1]]]
        least = float(torch.linalg.eigvalsh(part @ part.T)[0])
        is_hiding.append(least < problem.certificate.like_others * part.shape[1] / int(problem.gated.sum()))
    return torch.tensor(is_hiding, dtype=torch.bool)
