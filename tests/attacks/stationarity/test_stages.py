"""Stages of a search: halving keeps the better half, winners run in turn, and an interrupted search resumes."""

from dataclasses import replace

import pytest
import torch

from exhume.attacks.stationarity.stages import SearchPlan, SearchStages
from exhume.core.errors import ExhumeError
from exhume.core.run_context import RunContext
from tests.attacks.stationarity.test_runs import RANGES, pose

PLAN = SearchPlan(
    attack="a test", ranges=RANGES, trials=4, trial_steps=5, winners=1, restarts=3, steps=50, runs_at_once=64,
    precision="float32",
)  # fmt: skip


def search(plan=PLAN, **context):
    stages = SearchStages(plan, pose(), 4, 3, RunContext.start(seed=3, **context))
    knobs, trials, _ = stages.select_settings()
    return stages, knobs, trials, stages.run_winners(knobs)


@pytest.mark.parametrize(("trials", "winners", "rounds"), [(8, 2, 2), (8, 1, 3), (5, 2, 2), (2, 2, 1), (1, 1, 1)])
def test_rounds_halve_the_trials_to_the_winners(trials, winners, rounds):
    assert replace(PLAN, trials=trials, winners=winners).rounds == rounds


def test_the_winner_leaves_least_unexplained():
    _, knobs, trials, runs = search()
    finalists = [trial for trial in trials if trial["rounds"] == 2]
    dropped = [trial for trial in trials if trial["rounds"] == 1]
    assert (len(finalists), len(dropped)) == (2, 2)
    assert min(finalists, key=lambda trial: trial["residual"])["settings"] == knobs.row(0)
    assert runs.free.shape[0] == 3


def test_one_trial_takes_the_middle_of_every_range():
    _, knobs, trials, _ = search(replace(PLAN, trials=1, steps=2))
    assert trials == []
    for name, (low, high) in RANGES.items():
        assert knobs.row(0)[name] == pytest.approx((low * high) ** 0.5)


def test_runs_in_parts_are_the_runs_at_once():
    whole, parts = search()[-1], search(replace(PLAN, runs_at_once=2))[-1]
    torch.testing.assert_close(whole.free, parts.free, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("stage", "place"), [("settings, round 2 of 2", 10), ("recover", 25)])
def test_an_interrupted_search_resumes_and_leaves_no_file(tmp_path, stage, place):
    checkpoint = tmp_path / "search.safetensors"
    whole = search()[-1]

    def stop(name, done, total, note=""):
        if name == stage and done >= place:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(checkpoint=checkpoint, progress=stop)
    with pytest.raises(ExhumeError, match="other settings or data"):
        search(replace(PLAN, attack="another"), checkpoint=checkpoint)
    stages, _, _, resumed = search(checkpoint=checkpoint)
    assert torch.equal(resumed.free, whole.free)
    assert list(tmp_path.iterdir())
    stages.discard_checkpoints()
    assert not list(tmp_path.iterdir())
