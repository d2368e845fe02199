"""Accept candidate rows: sharpened, freed of each other, new, and beyond chance."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.gates.check import measure_agreement, measure_coverage
from exhume.attacks.gates.mixtures import remove_mixtures
from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.readout import fit_inputs
from exhume.attacks.gates.rows import drop_repeats, find_rows, sharpen
from exhume.attacks.gates.significance import log_p_generic
from exhume.attacks.gates.zeros import find_zeros, has_zeros_within
from exhume.core.suppression import suppress_neighbours


def accept_rows(
    problem: RowProblem,
    found: Float[Tensor, "row rank"],
    candidates: Float[Tensor, "candidate rank"],
    directions: Float[Tensor, "value free"],
    limit: float,
    generator: torch.Generator,
    late: bool = False,
) -> Float[Tensor, "merged rank"]:
    """Add to the found rows the candidates that are new and not explained by chance (log p-value below ``limit``).

    The sparsest come first. Known rows are subtracted from each, and in return each is subtracted from the known ones.
    Rows whose zeros are nearly those of a found one may be mixtures, and are accepted only when it is ``late``.
    """
    rules = problem.search
    rough = measure_agreement(problem, candidates, fit_inputs(problem, candidates, directions))
    order = rough.argsort(descending=True)
    likely = drop_repeats(candidates[order[rough[order] > rules.rough_agreement]], rules.similar_cosine)
    likely = likely[: max(rules.least_sharpened, problem.rank // 2)]
    if len(likely) == 0:
        return found
    # Once more from the inputs that these candidates imply: what was close to a true row converges to it.
    again = find_rows(problem, fit_inputs(problem, likely, directions), generator)
    sharp = drop_repeats(_sort_by_zeros(problem, sharpen(problem, torch.cat([likely, again]))), rules.same_cosine)
    sharp = sharpen(problem, remove_mixtures(problem, remove_mixtures(problem, sharp, found), sharp), steps=4)
    sharp = drop_repeats(sharp, rules.same_cosine)
    sharp = sharp[_is_acceptable(problem, sharp, found, directions, limit)]
    if late:
        merged = drop_repeats(torch.cat([found, sharp]), rules.same_cosine)
    else:
        merged = _add_distinct(problem, found, sharp)
    merged = merged[: problem.rank]
    if len(merged) > len(found):
        merged = drop_repeats(sharpen(problem, remove_mixtures(problem, merged, merged), steps=4), rules.same_cosine)
    return merged


def _add_distinct(problem: RowProblem, found: Tensor, rows: Tensor) -> Tensor:
    """Add to the found rows those that are distinct from all before them."""
    every = torch.cat([found, rows])
    pairs = has_zeros_within(problem, every, problem.certificate.own_zeros).cpu()
    pairs = pairs | pairs.T
    new = (~pairs[:, : len(found)].any(1)).nonzero()[:, 0]
    kept = [row for row, _ in suppress_neighbours(new[new >= len(found)], lambda row: pairs[row])]
    return torch.cat([found, every[kept]])


def _sort_by_zeros(problem: RowProblem, rows: Tensor) -> Tensor:
    """Sort rows, those with the most zeros first."""
    return rows[find_zeros(problem, rows).sum(dim=1).argsort(descending=True)]


def _is_acceptable(
    problem: RowProblem, rows: Tensor, found: Tensor, directions: Tensor, limit: float
) -> Bool[Tensor, " row"]:
    """Return which rows have more zeros than chance gives, nearly as many as found ones, and where one input is off."""
    inputs = fit_inputs(problem, rows, directions)
    is_single = measure_agreement(problem, rows, inputs) >= problem.certificate.single_input_agreement
    is_single &= measure_coverage(problem, rows, inputs) >= problem.search.least_coverage
    if len(found):
        usual = find_zeros(problem, found).sum(dim=1).double().median()
        is_single &= find_zeros(problem, rows).sum(dim=1) >= problem.search.relative_sparsity * usual
    return is_single & (log_p_generic(problem, rows).to(rows) < limit)
