"""The lowest curvature: it is that of the dense Hessian, and points that cannot be judged are reported."""

import torch

from exhume.gradient_sums.curvature import lowest_curvature
from tests.gradient_sums.networks import random


def search(gradient, at, **settings):
    return lowest_curvature(gradient, at, distance=1e-3, generator=torch.Generator().manual_seed(0), **settings)


def test_quadratics_have_the_lowest_eigenvalue_of_their_matrices():
    matrices = random(2, 3, 6, 6)
    matrices = matrices + matrices.mT
    directions, curvature = search(lambda at: (matrices @ at[..., None])[..., 0], random(2, 3, 6, seed=1))
    values, vectors = torch.linalg.eigh(matrices)
    torch.testing.assert_close(curvature, values[..., 0], rtol=1e-6, atol=1e-9)
    torch.testing.assert_close((directions * vectors[..., 0]).sum(-1).abs(), torch.ones(2, 3, dtype=torch.float64))


def test_a_few_products_find_the_lowest_of_many_curvatures():
    values = torch.linspace(-1.0, 1.0, 400, dtype=torch.float64)
    values[0] = -3.0
    directions, curvature = search(lambda at: values * at, random(4, 400))
    assert float(curvature.max()) < -2.9
    assert float(directions[:, 0].abs().min()) > 0.95


def test_directions_that_are_exhausted_end_the_search():
    # Two eigenvalues span two directions per start, so that all later products add nothing.
    values = torch.tensor([-2.0, -2.0, 1.0, 1.0, 1.0], dtype=torch.float64)
    directions, curvature = search(lambda at: values * at, random(3, 5))
    torch.testing.assert_close(curvature, torch.full((3,), -2.0, dtype=torch.float64))
    torch.testing.assert_close(directions.norm(dim=-1), torch.ones(3, dtype=torch.float64))


def test_a_point_without_a_finite_gradient_is_never_the_best():
    at = random(2, 4)
    directions, curvature = search(lambda moved: torch.where(torch.tensor([[False], [True]]), torch.nan, -moved), at)
    torch.testing.assert_close(curvature, torch.tensor([-1.0, torch.inf], dtype=torch.float64))
    assert bool(directions.isfinite().all())
