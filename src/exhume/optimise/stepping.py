"""Take many steps of runs in one precision after the other."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from exhume.core.repeated_step import RepeatedStep, recordable
from exhume.optimise.runs import Runs


@contextmanager
def stepper(runs: Runs) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances ``runs`` by a number of steps, all of them in one precision."""
    step, was_coarse = RepeatedStep(runs.take_step, runs.step.device), runs.is_coarse

    def advance(count: int) -> None:
        nonlocal step, was_coarse
        if runs.is_coarse is not was_coarse:  # a graph keeps the precision it was recorded in
            step, was_coarse = RepeatedStep(runs.take_step, runs.step.device), runs.is_coarse
        with tf32_products(was_coarse):
            for _ in range(count):
                step()
        runs.taken += count

    with recordable(runs.step.device):
        yield advance


@contextmanager
def tf32_products(allowed: bool) -> Iterator[None]:
    """Allow or forbid, inside the context, that a GPU rounds the factors of float32 matrix products to TF32.

    >>> before = torch.backends.cuda.matmul.allow_tf32
    >>> with tf32_products(True):
    ...     torch.backends.cuda.matmul.allow_tf32
    True
    >>> torch.backends.cuda.matmul.allow_tf32 == before
    True
    """
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
