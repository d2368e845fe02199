"""A repeated step does the same whether it is taken one by one or replayed."""

import pytest
import torch

from exhume.core.repeated_step import WARM_UP_STEPS, RepeatedStep, recordable

STEPS = WARM_UP_STEPS + 4
CPU = torch.device("cpu")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def halve_towards_one(total):
    return lambda: total.add_(1).mul_(0.5)


def repeat(device, waits=False):
    total = torch.zeros(2, device=device)
    take = halve_towards_one(total)

    def take_and_wait():
        take()
        total.sum().item()

    step = RepeatedStep(take_and_wait if waits else take, torch.device(device))
    with recordable(torch.device(device)):
        for _ in range(STEPS):
            step()
    return total.cpu(), step


def expected():
    return torch.full((2,), 1 - 0.5**STEPS)


def test_every_step_is_taken_on_a_cpu_and_none_is_recorded():
    total, step = repeat("cpu")
    assert torch.equal(total, expected())
    assert step.graph is None
    assert step.warmed == STEPS


def test_a_step_that_cannot_be_recorded_is_taken_one_by_one(monkeypatch):
    """As on a GPU, when recording fails because the step waits for the device."""
    total = torch.zeros(2)
    step = RepeatedStep(halve_towards_one(total), CPU)
    step.is_recordable = True
    asked = []
    monkeypatch.setattr(step, "_record", lambda: asked.append(step.warmed))  # returns None
    for _ in range(STEPS):
        step()
    assert torch.equal(total, expected())
    assert asked == [WARM_UP_STEPS]  # after the warm-up, and not again


def test_a_recorded_step_is_replayed(monkeypatch):
    class Graph:
        def __init__(self, take):
            self.replay = take

    total = torch.zeros(2)
    step = RepeatedStep(halve_towards_one(total), CPU)
    step.is_recordable = True
    monkeypatch.setattr(step, "_record", lambda: Graph(step.take))
    for _ in range(STEPS):
        step()
    assert torch.equal(total, expected())
    assert step.warmed == WARM_UP_STEPS


@needs_gpu
def test_a_gpu_replays_a_recorded_step():
    total, step = repeat("cuda")
    assert torch.equal(total, expected())
    assert step.graph is not None


@needs_gpu
def test_a_gpu_takes_a_step_that_waits_one_by_one():
    total, step = repeat("cuda", waits=True)
    assert torch.equal(total, expected())
    assert step.graph is None
