"""How the benchmarks measure: best of alternating rounds, slopes on logarithmic scales, peaks of memory."""

import itertools
import math
import time
from collections.abc import Callable, Sequence

import torch
from torch.profiler import ProfilerActivity, profile

Work = Callable[[], object]


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def clock_for(device: str) -> Callable[[], float]:
    """Return what to measure with: the time this process had, where one thread does all, as others may be at work."""
    return time.process_time if device == "cpu" and torch.get_num_threads() == 1 else time.perf_counter


def seconds_of(*works: Work, device: str, rounds: int = 3) -> list[float]:
    """Return the least seconds of each, over rounds that take turns, so that a busy machine is unfair to none."""
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
    """Return by how much the memory of tensors rises at most during the work, as the allocator tells."""
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
    told = [event for event in watched.profiler.kineto_results.events() if event.name() == "[memory]"]
    deltas = [event.nbytes() for event in sorted(told, key=lambda event: event.start_ns())]
    return max(itertools.accumulate(deltas), default=0) / 2**20
