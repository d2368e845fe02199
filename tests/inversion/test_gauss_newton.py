"""Gauss–Newton against the solution of linear least squares, with and without active bounds."""

import pytest
import torch

from exhume.inversion.conditioning import DirectSteps, find_footprints
from exhume.inversion.gauss_newton import (
    InputBox,
    MatrixFreeSteps,
    jacobian_products,
    minimise_residuals,
    solve_damped,
)
from tests.inversion.trunks import BOX, draw_images, function_of, plain


def test_products_are_those_of_the_jacobian() -> None:
    torch.manual_seed(0)
    trunk, image = function_of(plain()), draw_images(1).double()
    values, (forward, backward) = jacobian_products(trunk, image)
    full = torch.func.jacrev(trunk)(image)[0, :, 0].flatten(1)
    direction, dual = torch.randn_like(image), torch.randn_like(values)
    assert torch.allclose(forward(direction)[0], full @ direction.flatten())
    assert torch.allclose(backward(dual).flatten(), full.T @ dual[0])


def test_damped_steps_solve_the_normal_equations_of_each_example() -> None:
    torch.manual_seed(0)
    matrices = torch.randn(2, 9, 4, dtype=torch.float64)
    products = (
        lambda v: torch.einsum("efv,ev->ef", matrices, v),
        lambda u: torch.einsum("efv,ef->ev", matrices, u),
    )
    gradient, damping = torch.randn(2, 4, dtype=torch.float64), torch.tensor([0.0, 3.0], dtype=torch.float64)
    free = torch.ones(2, 4, dtype=torch.bool)
    free[1, 2] = False
    step = solve_damped(products, gradient, damping, free, iterations=20, tolerance=1e-12)
    for index in range(2):
        which = free[index]
        gram = (matrices[index].T @ matrices[index])[which][:, which] + damping[index] * torch.eye(int(which.sum()))
        assert torch.allclose(step[index][which], torch.linalg.solve(gram, -gradient[index][which]))
    assert float(step[1, 2]) == 0


@pytest.mark.parametrize("is_direct", [True, False])
def test_both_kinds_of_steps_find_the_image_from_near_it(is_direct: bool) -> None:
    torch.manual_seed(0)
    trunk, images = function_of(plain()), draw_images().double()
    features = trunk(images)
    footprints = find_footprints(trunk, tuple(images.shape[1:]), images)
    take_step = DirectSteps(trunk, footprints) if is_direct else MatrixFreeSteps(trunk, 100)
    box = InputBox(BOX.lowest.double(), BOX.highest.double())
    starts = box.clamp(images + 0.05 * torch.randn_like(images))
    found = minimise_residuals(trunk, features, starts, box, take_step=take_step, steps=30)
    assert float((found - images).abs().max()) < 1e-6
    assert bool((found >= 0).all())
