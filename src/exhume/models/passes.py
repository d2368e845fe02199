"""Whether a network computes the same in training as afterwards."""

import copy

import torch
from torch import nn

PROBES = 32
"""Number of random inputs on which both modes are compared."""


def is_same_in_training(model: nn.Module, input_shape: tuple[int, ...]) -> bool:
    """Return whether outputs do not depend on the mode: no dropout, and no normalisation by batches.

    False where random inputs cannot be passed through the network.

    >>> is_same_in_training(nn.Linear(3, 1), (3,))
    True
    >>> is_same_in_training(nn.Sequential(nn.Linear(3, 8), nn.Dropout()), (3,))
    False
    """
    model = copy.deepcopy(model).float().cpu()
    probes = torch.randn(PROBES, *input_shape, generator=torch.Generator().manual_seed(0))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            return torch.equal(model.eval()(probes), model.train()(probes))
        except (RuntimeError, TypeError, ValueError):
            return False
