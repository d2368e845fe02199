"""The loop: it descends as Adam does, resumes to the bit, and tells how it ended."""

import pytest
import torch

from exhume.core.checkpoint import Checkpoint
from exhume.core.errors import ExhumeError
from exhume.optimise.loop import LOOK_STEPS, Descent, judge, matrix_precision, minimise, thinned
from exhume.records import Outcome

TARGET = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)


def bowl(variables, elapsed):
    """A quadratic that gets steeper as the run goes on."""
    (x,) = variables
    steepness = torch.tensor([1.0, 10.0, 100.0], dtype=x.dtype) * (1 + elapsed)
    return (steepness * (x - TARGET).square()).sum(), (2 * steepness * (x - TARGET),)


def start():
    return (torch.zeros(3, dtype=torch.float64),)


def test_it_walks_the_same_way_as_torch_adam():
    descent = Descent(steps=40, learning_rates=(0.1,), decay="none")
    end = minimise(bowl, start(), descent)
    x = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([x], lr=0.1)
    for step in range(40):
        x.grad = bowl((x.detach(),), torch.tensor(step / 40, dtype=torch.float64))[1][0]
        adam.step()
    torch.testing.assert_close(end.variables[0], x.detach(), rtol=1e-9, atol=1e-12)
    assert end.steps == len(end.history) == 40


def test_it_finds_the_minimum_and_says_so():
    end = minimise(bowl, start(), Descent(steps=600, learning_rates=(0.1,)), scale=1000.0)
    torch.testing.assert_close(end.variables[0], TARGET, rtol=0, atol=0.01)
    assert end.outcome is Outcome.CONVERGED
    assert end.history[-1] < 1e-3 * end.history[0]


def test_the_start_is_not_touched():
    (x,) = variables = start()
    minimise(bowl, variables, Descent(steps=5, learning_rates=(0.1,)))
    assert torch.equal(x, torch.zeros(3, dtype=torch.float64))


class Stop(Exception):  # noqa: N818
    pass


@pytest.mark.parametrize("interruption", [Stop, KeyboardInterrupt])
def test_an_interrupted_run_ends_with_the_same_bits(tmp_path, interruption, monkeypatch):
    monkeypatch.setattr("exhume.core.checkpoint.SAVE_SECONDS", 0.0)
    descent = Descent(steps=4 * LOOK_STEPS + 7, learning_rates=(0.05,))
    whole = minimise(bowl, start(), descent)

    def stop(stage, done, total, note=""):
        if done == 2 * LOOK_STEPS:
            raise interruption

    file = tmp_path / "search.safetensors"
    with pytest.raises(interruption):
        minimise(bowl, start(), descent, progress=stop, checkpoint=Checkpoint(file, "one", "search"))
    calls = []

    def counted(variables, elapsed):
        calls.append(elapsed)
        return bowl(variables, elapsed)

    resumed = minimise(counted, start(), descent, checkpoint=Checkpoint(file, "one", "search"))
    assert len(calls) == descent.steps - 2 * LOOK_STEPS
    assert torch.equal(resumed.variables[0], whole.variables[0])
    assert torch.equal(resumed.history, whole.history)
    assert resumed.outcome is whole.outcome


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    file = tmp_path / "search.safetensors"
    descent = Descent(steps=5, learning_rates=(0.1,))
    minimise(bowl, start(), descent, checkpoint=Checkpoint(file, "one", "search"))
    with pytest.raises(ExhumeError, match="belongs to a search with other settings or data"):
        minimise(bowl, start(), descent, checkpoint=Checkpoint(file, "another", "search"))


def test_a_run_that_diverges_returns_its_last_finite_state():
    def cliff(variables, elapsed):
        value, gradients = bowl(variables, elapsed)
        return torch.where(elapsed > 0.5, torch.nan, value), tuple(
            g + torch.where(elapsed > 0.5, torch.nan, 0.0) for g in gradients
        )

    end = minimise(cliff, start(), Descent(steps=10 * LOOK_STEPS, learning_rates=(0.1,)))
    assert end.outcome is Outcome.DIVERGED
    assert bool(torch.isfinite(end.variables[0]).all())


def test_patience_ends_a_run_that_no_longer_falls():
    def raised(variables, elapsed):
        value, gradients = bowl(variables, elapsed)
        return value + 1, gradients

    end = minimise(raised, start(), Descent(steps=5000, learning_rates=(0.1,), decay="none", patience=100))
    assert end.steps < 2000
    assert end.outcome is Outcome.STALLED


@pytest.mark.parametrize(
    ("history", "outcome"),
    [
        (torch.full((100,), 0.5), Outcome.STALLED),
        (torch.linspace(1.0, 0.2, 100), Outcome.STEPS_EXHAUSTED),
        (torch.tensor([1.0, 0.01]), Outcome.CONVERGED),
        (torch.tensor([1.0, torch.nan]), Outcome.DIVERGED),
        (torch.tensor([0.7]), Outcome.STALLED),
    ],
)
def test_the_end_is_judged_from_the_values(history, outcome):
    assert judge(history, 1.0, 0.05) is outcome


def test_a_long_history_is_thinned_and_keeps_its_end():
    kept = thinned(torch.arange(12345.0))
    assert len(kept) == 1000
    assert kept[-1] == 12344
    assert bool((kept.diff() > 0).all())


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"learning_rates": (0.0,)}, {"learning_rates": (float("nan"),)}])
def test_settings_that_cannot_work_are_refused(wrong):
    with pytest.raises(ExhumeError):
        Descent(**{"steps": 1, "learning_rates": (0.1,)} | wrong)


def test_matrix_precision_is_put_back():
    before = torch.backends.cuda.matmul.allow_tf32
    with matrix_precision(tf32=not before):
        assert torch.backends.cuda.matmul.allow_tf32 is not before
    assert torch.backends.cuda.matmul.allow_tf32 is before
