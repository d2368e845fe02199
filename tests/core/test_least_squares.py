"""Least squares against the pseudo-inverse."""

import torch

from exhume.core.least_squares import solve_least_squares


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_the_solution_is_that_of_the_pseudo_inverse():
    matrix, wanted = draw(9, 4), draw(9, 3)
    assert torch.allclose(solve_least_squares(matrix, wanted), torch.linalg.pinv(matrix) @ wanted)


def test_of_many_solutions_it_is_the_shortest():
    matrix, wanted = draw(9, 2) @ draw(2, 6), draw(9, 1)
    assert torch.allclose(solve_least_squares(matrix, wanted), torch.linalg.pinv(matrix) @ wanted)
