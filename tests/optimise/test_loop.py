"""The loop with one run: it descends as Adam does, resumes to the bit, and reports how it ended."""

import pytest
import torch

from exhume.core.checkpoint import Checkpoint
from exhume.core.errors import ExhumeError
from exhume.core.run_context import OutOfTime
from exhume.optimise import Adam, minimise
from exhume.optimise.adam import INSPECTION_STEPS
from exhume.records import Outcome
from tests.optimise.quadratics import DOUBLE, TARGETS, quadratic, start


def test_it_takes_the_same_steps_as_the_adam_of_torch():
    end = minimise(quadratic(), start(), Adam(steps=40, learning_rates=(0.1,), decay="none"))
    x = torch.zeros(3, dtype=DOUBLE, requires_grad=True)
    adam = torch.optim.Adam([x], lr=0.1)
    for step in range(40):
        x.grad = quadratic()((x.detach(),), torch.tensor(step / 40, dtype=DOUBLE))[1][0]
        adam.step()
    torch.testing.assert_close(end.variables[0], x.detach(), rtol=1e-9, atol=1e-12)
    assert end.steps == len(end.history) == 40


def test_it_finds_the_minimum_and_reports_convergence():
    end = minimise(quadratic(), start(), Adam(steps=600, learning_rates=(0.1,)), scale=1000.0)
    torch.testing.assert_close(end.variables[0], TARGETS[0], rtol=0, atol=0.01)
    assert end.outcome is Outcome.CONVERGED
    assert end.history[-1] < 1e-3 * end.history[0]


def test_the_start_is_not_modified():
    (x,) = variables = start()
    minimise(quadratic(), variables, Adam(steps=5, learning_rates=(0.1,)))
    assert torch.equal(x, torch.zeros(3, dtype=DOUBLE))


class Stop(Exception):  # noqa: N818
    pass


@pytest.mark.parametrize("interruption", [Stop, KeyboardInterrupt])
def test_an_interrupted_run_ends_with_the_same_bits(tmp_path, interruption, monkeypatch):
    monkeypatch.setattr("exhume.core.checkpoint.SAVE_SECONDS", 0.0)
    adam = Adam(steps=4 * INSPECTION_STEPS + 7, learning_rates=(0.05,))
    whole = minimise(quadratic(), start(), adam)

    def stop(stage, done, total, note=""):
        if done == 2 * INSPECTION_STEPS:
            raise interruption

    file = tmp_path / "search.safetensors"
    with pytest.raises(interruption):
        minimise(quadratic(), start(), adam, progress=stop, checkpoint=Checkpoint(file, "one", "search"))
    calls = []

    def counted(variables, elapsed):
        calls.append(elapsed)
        return quadratic()(variables, elapsed)

    resumed = minimise(counted, start(), adam, checkpoint=Checkpoint(file, "one", "search"))
    assert len(calls) == adam.steps - 2 * INSPECTION_STEPS
    assert torch.equal(resumed.variables[0], whole.variables[0])
    assert torch.equal(resumed.history, whole.history)
    assert resumed.outcome is whole.outcome


def test_slow_steps_keep_to_a_deadline_between_inspections(tmp_path, monkeypatch):
    adam = Adam(steps=2 * INSPECTION_STEPS, learning_rates=(0.05,))
    whole = minimise(quadratic(), start(), adam)
    monkeypatch.setattr("exhume.optimise.loop.SECONDS_TO_REPORT", -1.0)
    file, reported = tmp_path / "search.safetensors", []

    def stop(stage, done, total, note=""):
        reported.append(done)
        if done == 3:
            raise OutOfTime

    with pytest.raises(OutOfTime):
        minimise(quadratic(), start(), adam, progress=stop, checkpoint=Checkpoint(file, "one", "search"))
    assert reported == [0, 1, 2, 3]
    resumed = minimise(quadratic(), start(), adam, checkpoint=Checkpoint(file, "one", "search"))
    assert torch.equal(resumed.variables[0], whole.variables[0])


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    file = tmp_path / "search.safetensors"
    adam = Adam(steps=5, learning_rates=(0.1,))
    minimise(quadratic(), start(), adam, checkpoint=Checkpoint(file, "one", "search"))
    with pytest.raises(ExhumeError, match="belongs to a search with other settings or data"):
        minimise(quadratic(), start(), adam, checkpoint=Checkpoint(file, "another", "search"))


def test_a_run_that_diverges_returns_its_last_finite_state():
    def cliff(variables, elapsed):
        value, gradients = quadratic()(variables, elapsed)
        broken = torch.where(elapsed > 0.5, torch.nan, 0.0)
        return value + broken, tuple(gradient + broken for gradient in gradients)

    end = minimise(cliff, start(), Adam(steps=10 * INSPECTION_STEPS, learning_rates=(0.1,)))
    assert end.outcome is Outcome.DIVERGED
    assert bool(torch.isfinite(end.variables[0]).all())


def test_patience_ends_a_run_that_no_longer_falls():
    def raised(variables, elapsed):
        value, gradients = quadratic()(variables, elapsed)
        return value + 1, gradients

    end = minimise(raised, start(), Adam(steps=5000, learning_rates=(0.1,), decay="none", patience=100))
    assert end.steps < 2000
    assert end.outcome is Outcome.STALLED


def test_a_coarse_objective_replaces_the_first_steps_only():
    seen = []

    def coarse(variables, elapsed):
        seen.append(float(elapsed))
        return quadratic()(variables, elapsed)

    minimise(quadratic(), start(), Adam(steps=50, learning_rates=(0.1,), coarse_share=0.4), coarse=coarse)
    assert seen == pytest.approx([step / 50 for step in range(20)])
    seen.clear()
    minimise(quadratic(), start(), Adam(steps=50, learning_rates=(0.1,)), coarse=coarse)
    assert not seen
