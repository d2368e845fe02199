"""Tangent kernels: inner products of a network's gradients at two inputs, and regression with them."""

from exhume.kernels.empirical_ntk import empirical_ntk, kernel_distance
from exhume.kernels.infinite_ntk import InfiniteNTK
from exhume.kernels.regression import JITTER, KernelRegression, add_jitter, solve_duals

__all__ = ["JITTER", "InfiniteNTK", "KernelRegression", "add_jitter", "empirical_ntk", "kernel_distance", "solve_duals"]
