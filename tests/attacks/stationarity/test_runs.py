"""Runs side by side: each as if alone, with its own learning rates, and a run that diverges disturbs no other."""

import pytest
import torch

from exhume.attacks.stationarity.multipliers import MarginMultipliers
from exhume.attacks.stationarity.problem import StationarityProblem
from exhume.attacks.stationarity.runs import KNOBS, FinishedRuns, Knobs, draw_starts, minimise_runs
from exhume.clues.known_loss import balanced_labels
from exhume.clues.search_space import SearchSpace
from exhume.models.mlp import MLP
from exhume.records import AttackerView

RANGES = {
    "input_rate": (0.01, 0.1), "multiplier_rate": (0.01, 0.1), "init_std": (0.1, 1.0), "floor": (0.1, 0.5),
    "sharpness": (10.0, 100.0),
}  # fmt: skip


def pose():
    model = MLP(width=9, bias="first").build((1, 2, 3), 3, torch.Generator().manual_seed(0))
    final = {name: weight.double() for name, weight in model.state_dict().items()}
    view = AttackerView(model=model, final=final, input_shape=(1, 2, 3), bounds=(-1.0, 1.0))
    multipliers = MarginMultipliers(balanced_labels(4, 3, torch.device("cpu")), 3)
    return StationarityProblem.of(view, SearchSpace(6), multipliers, dtype=torch.float64)


def prepare(runs):
    generator = torch.Generator().manual_seed(2)
    problem, knobs = pose(), Knobs.draw(RANGES, runs, generator)
    return problem, knobs, draw_starts(problem, 4, 3, knobs, generator)


def test_a_run_ends_where_it_would_end_alone():
    problem, knobs, start = prepare(3)
    together = minimise_runs(problem, start, knobs, steps=30)
    alone = minimise_runs(problem, (start[0][2:], start[1][2:]), knobs.take(torch.tensor([2])), steps=30)
    torch.testing.assert_close(alone.free[0], together.free[2], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(alone.residuals[0], together.residuals[2])


def test_a_run_with_splits_ends_where_it_would_end_alone():
    problem, knobs, start = prepare(3)
    together = minimise_runs(problem, start, knobs, steps=30, splits=2)
    last = start[0][2:], start[1][2:]
    alone = minimise_runs(problem, last, knobs.take(torch.tensor([2])), steps=30, splits=2)
    torch.testing.assert_close(alone.free[0], together.free[2], rtol=1e-6, atol=1e-9)
    assert not torch.allclose(together.free, minimise_runs(problem, start, knobs, steps=30).free)


def test_runs_are_those_that_one_run_mapped_over_would_give():
    problem, knobs, start = prepare(3)
    together = problem.objective(*start, knobs.sharpness, knobs.floor)
    mapped = torch.func.vmap(problem.objective)(*start, knobs.sharpness, knobs.floor)
    torch.testing.assert_close(together, mapped)


def test_mixed_precision_ends_near_exact_steps(monkeypatch):
    problem, knobs, start = prepare(2)
    exact = minimise_runs(problem, start, knobs, steps=40)
    monkeypatch.setattr("exhume.attacks.stationarity.runs.short_dtype", lambda precision, device: torch.bfloat16)
    mixed = minimise_runs(problem, start, knobs, steps=40, precision="mixed")
    assert not torch.equal(mixed.free, exact.free)
    torch.testing.assert_close(mixed.residuals, exact.residuals, rtol=0.1, atol=0.02)


def test_a_run_that_diverges_disturbs_no_other():
    problem, knobs, start = prepare(3)
    together = minimise_runs(problem, start, knobs, steps=30)
    start[0][0] = 1e200
    damaged = minimise_runs(problem, start, knobs, steps=30)
    assert damaged.residuals[0] == torch.inf
    torch.testing.assert_close(damaged.residuals[1:], together.residuals[1:])
    assert bool(damaged.history.isfinite().all())


def test_the_first_step_of_each_run_has_the_size_of_its_learning_rate():
    problem, knobs, start = prepare(3)
    ends = minimise_runs(problem, start, knobs, steps=1)
    moved = (ends.free - start[0]).abs().flatten(1).amax(1)
    torch.testing.assert_close(moved, knobs.input_rate, rtol=1e-3, atol=0)


def test_runs_explain_more_than_their_starts():
    problem, knobs, start = prepare(4)
    ends = minimise_runs(problem, start, knobs, steps=60)
    before = torch.stack([problem.residual(*run) for run in zip(*start, knobs.sharpness, strict=True)])
    assert float(ends.residuals.median()) < float(before.median())
    assert float(ends.history[-1]) < float(ends.history[0])


def test_knobs_lie_in_their_ranges_evenly_on_a_logarithmic_scale():
    knobs = Knobs.draw(RANGES, 500, torch.Generator().manual_seed(0))
    for name in KNOBS:
        low, high = RANGES[name]
        values = getattr(knobs, name)
        assert low <= float(values.min()) <= float(values.max()) <= high
        assert float(values.median()) == pytest.approx((low * high) ** 0.5, rel=0.3)
    assert knobs.take(torch.tensor([3])).row(0) == knobs.row(3)


def test_parts_are_joined_in_order():
    def part(residual):
        return FinishedRuns(
            free=torch.zeros(1, 2, 3), raw=torch.zeros(1, 2), residuals=torch.tensor([residual]), history=torch.zeros(4)
        )

    assert FinishedRuns.join([part(0.5), part(0.25)]).residuals.tolist() == [0.5, 0.25]
