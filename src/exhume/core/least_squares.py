"""Least squares for matrices of any rank, on any device."""

import torch
from jaxtyping import Float
from torch import Tensor


def solve_least_squares(
    matrix: Float[Tensor, "equation unknown"], wanted: Float[Tensor, "equation column"]
) -> Float[Tensor, "unknown column"]:
    """Return the shortest solution of ``matrix @ solution = wanted`` in the sense of least squares.

    The driver that copes with matrices of lower rank runs on CPUs only, so both are moved there and back.

    >>> solve_least_squares(torch.ones(2, 2), torch.tensor([[1.0], [3.0]])).round(decimals=4).tolist()
    [[1.0], [1.0]]
    """
    solved: Tensor = torch.linalg.lstsq(matrix.cpu(), wanted.cpu(), driver="gelsd").solution
    return solved.to(matrix.device)
