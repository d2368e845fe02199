"""Objectives with a known minimum: one quadratic per run, steeper as the runs go on."""

import torch

DOUBLE = torch.float64
TARGETS = torch.tensor([[1.0, -2.0, 3.0], [0.5, 0.5, 0.5], [-4.0, 1.0, 0.0]], dtype=DOUBLE)


def quadratics(variables, elapsed, targets=TARGETS):
    """The objective of three runs."""
    (x,) = variables
    steepness = torch.tensor([1.0, 10.0, 100.0], dtype=DOUBLE) * (1 + elapsed)
    return (steepness * (x - targets).square()).sum(1), (2 * steepness * (x - targets),)


def quadratic(run=0):
    """The objective of one of these runs alone."""

    def objective(variables, elapsed):
        values, (gradient,) = quadratics((variables[0][None],), elapsed, TARGETS[run : run + 1])
        return values[0], (gradient[0],)

    return objective


def starts():
    return (torch.zeros(3, 3, dtype=DOUBLE),)


def start():
    return (torch.zeros(3, dtype=DOUBLE),)
