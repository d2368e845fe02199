"""Kernels: how alike a network finds two inputs when its weights move."""

from exhume.kernels.empirical_ntk import empirical_ntk, kernel_distance
from exhume.kernels.infinite_ntk import InfiniteNTK
from exhume.kernels.regression import JITTER, KernelRegression, duals_of, jittered

__all__ = ["JITTER", "InfiniteNTK", "KernelRegression", "duals_of", "empirical_ntk", "jittered", "kernel_distance"]
