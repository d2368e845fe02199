"""Tools to measure: best time of alternating rounds, exponents of power laws, peak memory."""

import itertools
import math
import time
from collections.abc import Callable, Sequence

import torch
from torch.profiler import ProfilerActivity, profile

Work = Callable[[], object]


def wait(device: str) -> None:
    """Wait until a GPU has finished its work."""
    if device == "cuda":
        torch.cuda.synchronize()


def clock_for(device: str) -> Callable[[], float]:
    """Return the clock to use: the CPU time of this process if it has one thread, since others may use the machine."""
    return time.process_time if device == "cpu" and torch.get_num_threads() == 1 else time.perf_counter


def seconds_of(*works: Work, device: str, rounds: int = 3) -> list[float]:
    """Return the least seconds of each work, over rounds in which they take turns, so that load slows all alike."""
    for work in works:
        work()
    best, clock = [math.inf] * len(works), clock_for(device)
    for _ in range(rounds):
        for number, work in enumerate(works):
            wait(device)
            started = clock()
            work()
            wait(device)
            best[number] = min(best[number], clock() - started)
    return best


def slope(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the exponent of a power law through the points, by least squares of the logarithms.

    >>> round(slope([1, 2, 4], [3, 12, 48]), 6)
    2.0
    """
    xs, ys = [math.log(size) for size in sizes], [math.log(second) for second in seconds]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)


def peak_megabytes(work: Work, device: str) -> float:
    """Return the largest increase of tensor memory during the work, in MiB, as the allocator reports it."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        work()
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        work()
    allocations = [event for event in watched.profiler.kineto_results.events() if event.name() == "[memory]"]
    deltas = [event.nbytes() for event in sorted(allocations, key=lambda event: event.start_ns())]
    return max(itertools.accumulate(deltas), default=0) / 2**20
