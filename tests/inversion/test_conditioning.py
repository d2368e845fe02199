"""The sparse Jacobian against the dense one, and what it says about free directions."""

import numpy as np
import scipy.sparse
import torch
from torch import nn

from exhume.inversion.conditioning import examine, find_footprints, jacobian
from tests.inversion.trunks import SHAPE, draw_images, function_of, residual


def test_sparse_jacobian_equals_the_dense_one() -> None:
    torch.manual_seed(0)
    trunk, image = function_of(residual()), draw_images(1)[0].double() + 0.01
    footprints = find_footprints(trunk, SHAPE, image)
    assert footprints.count < image.numel()
    dense = torch.func.jacrev(trunk)(image[None])[0, :, 0].flatten(1)
    assert np.allclose(jacobian(trunk, image, footprints).toarray(), dense.numpy())


def test_a_dense_layer_needs_one_probe_per_value() -> None:
    footprints = find_footprints(function_of(nn.Sequential(nn.Flatten(), nn.Linear(6, 4))), (6,), torch.zeros(6))
    assert footprints.count == 6


def test_spread_is_that_of_least_squares_and_free_directions_are_counted() -> None:
    generator = np.random.default_rng(0)
    matrix = generator.normal(size=(40, 6))
    span = torch.ones(6, dtype=torch.float64)
    known = examine(scipy.sparse.csc_matrix(matrix), 1e-3, span, 0.01)
    expected = 1e-3 * np.sqrt(np.diagonal(np.linalg.inv(matrix.T @ matrix)))
    assert (known.free, known.equations) == (0, 40)
    assert np.allclose(known.spread.numpy(), expected)
    matrix[:, 5] = matrix[:, 4]
    open_ = examine(scipy.sparse.csc_matrix(matrix), 1e-3, span, 0.01)
    assert open_.free == 1
    assert bool((open_.spread[4:] > 0.2).all())
    assert bool((open_.spread[:4] < 0.01).all())
