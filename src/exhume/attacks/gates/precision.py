"""How far noise moves inputs, and how little it does where only the span of similar rows is used.

The input of a row is read out as the vector that all *other* rows leave open, so it depends on what the others span and
not on which rows they are. Rows of near-duplicates are nearly parallel: each has a large effect, most of which the
others cancel, and what noise makes of the difference is large too. Their span is known far better, from the zeros that
all of them share. So where rows may be mixed with each other, other inputs are read out beside their span.
"""

import torch
from jaxtyping import Bool, Float
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from exhume.attacks.gates.exchange import read_codes
from exhume.attacks.gates.fit import orient_codes
from exhume.attacks.gates.mixing import has_decayed, may_contain
from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.zeros import find_zeros
from exhume.core.progress import Tick, no_tick

Families = list[list[int]]
"""Sets of two or more rows that may be mixed with each other."""


def fit_families(
    problem: RowProblem, rows: Float[Tensor, "row rank"], tick: Tick = no_tick
) -> tuple[Float[Tensor, "row rank"], Families]:
    """Fit the span of rows that may be mixed with each other to the zeros that they share, where that is more precise.

    ``tick`` is called between steps; it may raise to stop.

    Returns:
        The rows, and the families by whose spans other inputs are bounded; none where that is no more precise.
    """
    if len(rows) < problem.rank:
        return rows, []
    codes = orient_codes(problem, rows, read_codes(problem, rows))
    families = find_families(may_contain(problem, rows, codes, is_strict=True, tick=tick))
    if not families:
        return rows, []
    fitted = fit_spans(problem, rows, families)
    others = ~_are_members(rows, families)
    apart = input_errors(problem, rows, tick=tick)[others]
    together = input_errors(problem, fitted, families, tick)[others]
    return (fitted, families) if bool(together.log().sum() < apart.log().sum()) else (rows, [])


def find_families(parts: Bool[Tensor, "row row"]) -> Families:
    """Return the sets of two or more rows that are linked by pairs of which one may be mixed into the other."""
    count, labels = connected_components(parts.cpu().numpy(), directed=False)
    families = [(labels == family).nonzero()[0].tolist() for family in range(count)]
    return [family for family in families if len(family) > 1]


def fit_spans(problem: RowProblem, rows: Float[Tensor, "row rank"], families: Families) -> Float[Tensor, "row rank"]:
    """Project the rows of each family onto the space that is zero on all of their common zeros."""
    fitted, zeros = rows.clone(), find_zeros(problem, rows)
    for family in families:
        columns = problem.rows[:, zeros[family].all(dim=0)]
        gram = columns @ columns.T
        gram = gram + 1e-13 * gram.diagonal().mean() * torch.eye(len(gram)).to(gram)
        factor, failure = torch.linalg.cholesky_ex(gram)
        if int(failure):  # too few common zeros
            continue
        span = torch.linalg.qr(rows[family].T).Q
        for _ in range(4):  # inverse iterations
            span = torch.linalg.qr(torch.cholesky_solve(span, factor)).Q
        inside = rows[family] @ span @ span.T
        fitted[family] = inside / inside.norm(dim=1, keepdim=True) * rows[family].norm(dim=1, keepdim=True)
    return fitted


def input_errors(
    problem: RowProblem, rows: Float[Tensor, "rank rank"], families: Families | None = None, tick: Tick = no_tick
) -> Float[Tensor, " row"]:
    """Bound the error of each input that the noise of the weights causes, in the read-out and through the rows.

    A row is known from its zeros: the fewer of them determine a direction, the further noise can tilt the row in this
    direction. A tilt of row ``j`` moves the other inputs by multiples of the difference to its own input. What the
    singular values show beyond noise (inputs with a tiny effect) may lie in any direction and is added in full.

    With ``families``, whose spans were fitted, inputs of other rows are bounded by what noise makes of these spans.
    ``tick`` is called before each row; it may raise to stop.
    """
    zeros = find_zeros(problem, rows)
    alone = _bound_errors(problem, rows, zeros, [[row] for row in range(len(rows))], tick)
    if not families:
        return alone
    is_member = _are_members(rows, families)
    sets = [*families, *([row] for row in (~is_member).nonzero()[:, 0].tolist())]
    # Any basis of a span leaves the inputs of other rows as they are; an orthonormal one has no effects that cancel.
    basis = rows.clone()
    for family in families:
        basis[family] = torch.linalg.qr(rows[family].T).Q.T
    return torch.where(is_member, alone, _bound_errors(problem, basis, zeros, sets, tick))


def _are_members(rows: Tensor, families: Families) -> Bool[Tensor, " row"]:
    """Return which rows belong to a family."""
    members = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
    for family in families:
        members[family] = True
    return members


def _bound_errors(
    problem: RowProblem, rows: Float[Tensor, "rank rank"], zeros: Bool[Tensor, "rank unit"], sets: Families, tick: Tick
) -> Float[Tensor, " row"]:
    """Bound errors of inputs, with rows of the same set known from the zeros that all of the set share."""
    readers = torch.linalg.inv(rows)
    effects = (problem.change @ readers).T
    constants = effects[:, -1] if problem.has_bias else torch.ones_like(effects[:, 0])
    inputs = effects / constants[:, None]
    amplification: Tensor = readers.norm(dim=0) / constants.abs()
    # Gradients are rounded relative to their size, so values with a large change are noisier. The constant is one of
    # them, and inputs are divided by it.
    unit = problem.noise * (
        problem.certificate.shared_rounding if problem.gates_are_exact or has_decayed(problem) else 1.0
    )
    sizes = problem.change.norm(dim=1)
    spread = (sizes / sizes[sizes > 0].square().mean().sqrt()).clamp(min=1).square()
    spread = spread + (inputs.square() * spread[-1] if problem.has_bias else 0)
    variance = (unit * amplification).square()[:, None] * spread
    noise = unit * (rows / problem.strengths).norm(dim=1)
    for members in sets:
        tick()
        columns = problem.rows[:, zeros[members].all(dim=0)]
        strengths, directions = torch.linalg.eigh(columns @ columns.T)  # the first directions are the rows themselves
        free = slice(len(members), None)
        tilts = (directions[:, free].T @ readers / strengths[free, None].clamp(min=1e-300).sqrt()).norm(dim=0)
        for row in members:
            # What a true row has at its zeros is noise; more than that may be entries that are not zero.
            scatter = torch.maximum(noise[row], (rows[row] @ columns).square().mean().sqrt())
            shares = scatter * tilts / constants
            shares[members] = 0  # the read-out of an input does not use the rows of its own set
            variance += (shares[:, None] * (effects[row] - inputs * constants[row])).square()
    largest: Tensor = variance.amax(dim=1).sqrt()
    return problem.certificate.deviations(effects.numel()) * largest + problem.unexplained * amplification
