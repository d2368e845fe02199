"""Take many steps as fast as a device allows: on a GPU one step is recorded as a CUDA graph and replayed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from exhume.optimise.runs import Runs

WARM_UP_STEPS = 3
"""Steps taken one by one before a CUDA graph is recorded, so that libraries have chosen their kernels."""


@contextmanager
def stepper(runs: Runs) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances ``runs`` by a number of steps, all of them in one precision."""
    advance = _Stepper(runs)
    if not runs.step.is_cuda:
        yield advance
        return
    # Graphs are recorded off the default stream; the warm-up runs there too, so that it warms what is recorded.
    stream = torch.cuda.Stream(runs.step.device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield advance
    torch.cuda.current_stream().wait_stream(stream)


class _Stepper:
    def __init__(self, runs: Runs) -> None:
        self.runs, self.is_coarse = runs, runs.is_coarse
        self.graph: torch.cuda.CUDAGraph | None = None
        self.warmed = 0
        self.is_recordable = runs.step.is_cuda

    def __call__(self, steps: int) -> None:
        runs = self.runs
        if runs.is_coarse is not self.is_coarse:  # a graph keeps the precision it was recorded in
            self.is_coarse, self.graph, self.is_recordable = runs.is_coarse, None, runs.step.is_cuda
            self.warmed = 0
        with tf32_products(self.is_coarse):
            for _ in range(steps):
                if self.is_recordable and self.graph is None and self.warmed == WARM_UP_STEPS:
                    self.graph = _record(runs)
                    self.is_recordable = self.graph is not None
                if self.graph is None:
                    runs.take_step()
                    self.warmed += 1
                else:
                    self.graph.replay()
        runs.taken += steps


def _record(runs: Runs) -> "torch.cuda.CUDAGraph | None":
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
            runs.take_step()
    except RuntimeError:  # an objective that waits for the device cannot be recorded; it runs step by step
        torch.cuda.synchronize()
        return None
    return graph


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
