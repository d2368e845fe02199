"""Kernels: how alike a network finds two inputs when its weights move."""

from exhume.kernels.empirical_ntk import empirical_ntk, kernel_distance

__all__ = ["empirical_ntk", "kernel_distance"]
