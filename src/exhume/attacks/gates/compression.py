"""A row problem in few coordinates: all inputs lie in the span of the change, so their values need not be kept apart.

The search multiplies thousands of candidates with the weights of all gates. In coordinates of the span, these products
cost the rank instead of the number of input values, and the answers are the same: the change of coordinates preserves
lengths and angles, and leaves the constant of a bias in its last place.
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.gates.problem import RowProblem


def coordinates_of(problem: RowProblem) -> Float[Tensor, "value coordinate"]:
    """Return orthonormal columns whose span holds all inputs; with a bias, the last is the constant alone."""
    if not problem.has_bias:
        return problem.basis
    directions = torch.linalg.qr(problem.basis[:-1]).Q
    columns = problem.basis.new_zeros(len(problem.basis), directions.shape[1] + 1)
    columns[:-1, :-1], columns[-1, -1] = directions, 1.0
    return columns


def compress_values(problem: RowProblem) -> tuple[RowProblem, Float[Tensor, "value coordinate"]]:
    """Return the problem in coordinates of the span of its inputs, and the columns that lead there.

    The problem is returned as it is where it has fewer values than coordinates.
    """
    columns = coordinates_of(problem)
    if columns.shape[1] >= len(columns):
        return problem, torch.eye(len(columns)).to(columns)
    compressed = replace(
        problem,
        basis=columns.T @ problem.basis,
        before=problem.before @ columns,
        after=problem.after @ columns,
    )
    return compressed, columns
