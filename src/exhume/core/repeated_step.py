"""A step that is taken many times, as fast as a device allows: a GPU records it once as a CUDA graph and replays it."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

WARM_UP_STEPS = 3
"""Steps taken one by one before a CUDA graph is recorded, so that libraries have chosen their kernels."""


class RepeatedStep:
    """A step on tensors that change in place and keep their memory; call it as often as there are steps.

    A step that waits for the device cannot be recorded; it is taken one by one, as on a CPU.

    >>> total = torch.zeros(1)
    >>> step = RepeatedStep(lambda: total.add_(1), total.device)
    >>> for _ in range(5):
    ...     step()
    >>> total
    tensor([5.])
    """

    def __init__(self, take: Callable[[], object], device: torch.device) -> None:
        self.take, self.device = take, device
        self.is_recordable = device.type == "cuda"
        self.graph: torch.cuda.CUDAGraph | None = None
        self.warmed = 0

    def __call__(self) -> None:
        """Take one step."""
        if self.is_recordable and self.graph is None and self.warmed == WARM_UP_STEPS:
            self.graph = self._record()
            self.is_recordable = self.graph is not None
        if self.graph is None:
            self.take()
            self.warmed += 1
        else:
            self.graph.replay()

    def _record(self) -> "torch.cuda.CUDAGraph | None":
        graph = torch.cuda.CUDAGraph()
        gc.collect()  # a graph that is freed during the recording would break it
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            with torch.cuda.graph(graph, stream=torch.cuda.current_stream(self.device)):
                self.take()
        except RuntimeError:  # the step waits for the device
            torch.cuda.synchronize()
            return None
        finally:
            if was_enabled:
                gc.enable()
        return graph


@contextmanager
def recordable(device: torch.device) -> Iterator[None]:
    """Run the context where steps can be recorded: on a GPU off the default stream, the warm-up steps included."""
    if device.type != "cuda":
        yield
        return
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    usual = torch.cuda.current_stream(device)
    stream.wait_stream(usual)
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        usual.wait_stream(stream)
