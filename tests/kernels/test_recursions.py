"""The arc-cosine recursions: the diagonal, derivatives against finite differences, and two formulas in one limit."""

import math

import pytest
import torch

from exhume.kernels.recursions import LayerGains, kernel_diagonal, kernel_with_slopes


def gains(**changes):
    values = {"depth": 2, "weight_variance": 1.7, "bias_variance": 0.0, "first": 5.0, "hidden": 64.0, "bias": 1.0}
    return LayerGains(**(values | changes))


def mean_products(left, right):
    return left @ right.T / left.shape[1], left.square().mean(1), right.square().mean(1)


def inputs(count, seed=0):
    return torch.randn(count, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("bias_variance", [0.0, 0.2])
def test_diagonal_is_that_of_the_whole_kernel(depth, bias_variance):
    network, points = gains(depth=depth, bias_variance=bias_variance), inputs(6)
    products, rows, columns = mean_products(points, points)
    kernel = kernel_with_slopes(network, products, rows, columns, same=True).kernel
    assert torch.allclose(kernel.diagonal(), kernel_diagonal(network, rows), rtol=1e-6)


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("bias_variance", [0.0, 0.2])
def test_slopes_equal_finite_differences(depth, bias_variance):
    network, step = gains(depth=depth, bias_variance=bias_variance), 1e-6
    products, rows, columns = mean_products(inputs(4), inputs(3, seed=1))
    slopes = kernel_with_slopes(network, products, rows, columns)

    def difference(product_step, log_step):
        ahead, behind = (
            kernel_with_slopes(network, products + sign * product_step, rows * math.exp(sign * log_step), columns)
            for sign in (1, -1)
        )
        return (ahead.kernel - behind.kernel) / (2 * step)

    assert torch.allclose(slopes.by_product, difference(step, 0.0), rtol=1e-6, atol=1e-6)
    assert torch.allclose(slopes.by_log_square, difference(0.0, step), rtol=1e-5, atol=1e-5)


def test_random_biases_of_vanishing_variance_change_nothing():
    products, rows, columns = mean_products(inputs(4), inputs(3, seed=1))
    without = kernel_with_slopes(gains(), products, rows, columns)
    tiny = kernel_with_slopes(gains(bias_variance=1e-12), products, rows, columns)
    assert torch.allclose(without.kernel, tiny.kernel, rtol=1e-9)
    assert torch.allclose(without.by_product, tiny.by_product, rtol=1e-8)
    assert torch.allclose(without.by_log_square, tiny.by_log_square, rtol=1e-8, atol=1e-8)


def test_parallel_inputs_have_a_finite_slope():
    points = inputs(3)
    products, rows, columns = mean_products(points, 2 * points)
    slopes = kernel_with_slopes(gains(), products, rows, columns)
    assert torch.isfinite(slopes.by_product).all()
    assert torch.isfinite(slopes.by_log_square).all()
