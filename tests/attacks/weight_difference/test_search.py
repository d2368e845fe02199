"""Stages of a search: crowded networks begin half way between the ends, and each stage begins where the last ended."""

from dataclasses import replace

import pytest
import torch

from exhume.attacks import WeightDifference, run_together
from exhume.core.errors import ExhumeError
from exhume.records import Outcome
from tests.attacks.victims import train_mlp

QUICK = WeightDifference(steps=60)


@pytest.fixture(scope="module")
def crowded():
    """A network with eight units per example."""
    return train_mlp(size=8, width=64)[1]


def positions(attack, view):
    return [stage.positions for stage in attack._plan(view).stages]


def test_a_search_begins_half_way_where_a_network_is_crowded(crowded):
    roomy = train_mlp(size=8, width=128)[1]
    assert positions(QUICK, crowded) == [(0.5,), (0.0, 1.0)]
    assert positions(QUICK, roomy) == [(0.0, 1.0)]
    assert positions(replace(QUICK, midway=0.5), roomy) == [(0.5,), (0.0, 1.0)]
    assert positions(replace(QUICK, midway=0.0), crowded) == [(0.0, 1.0)]
    assert positions(replace(QUICK, features="final", midway=0.5), crowded) == [(1.0,)]
    assert positions(replace(QUICK, features=(0.0, 0.5, 1.0)), crowded) == [(0.5,), (0.0, 0.5, 1.0)]
    assert positions(QUICK, train_mlp(size=8, width=64, linearised=True)[1]) == [(0.0,)]
    assert positions(WeightDifference.published(), crowded) == [(0.0, 1.0)]
    stages = replace(QUICK, midway=0.25)._plan(crowded).stages
    assert [stage.steps for stage in stages] == [15, 45]
    assert [stage.sharpness for stage in stages] == [(10.0, 100.0), (100.0, 100.0)]
    with pytest.raises(ExhumeError, match="less than or equal to 1"):
        WeightDifference(midway=1.5)


def test_a_stage_begins_where_the_last_one_ended(crowded):
    # Two points in one place are that place twice, so the second stage begins with the value the first ended with.
    attack = WeightDifference(steps=200, features=(0.5, 0.5), midway=0.5, precision="float64")
    found = attack.run(crowded, device="cpu")
    assert len(found.history) == 200
    assert float(found.history[100]) == pytest.approx(float(found.history[99]), rel=0.02)
    assert float(found.history[99]) < 0.5 * float(found.history[0])
    assert found.diagnostics["steps"] == 200


@pytest.mark.parametrize("stop_at", [20, 50])
def test_a_search_interrupted_in_either_stage_ends_with_the_same_bits(crowded, tmp_path, stop_at):
    whole, reports = QUICK.run(crowded, device="cpu"), []

    def stop(stage, done, total, note=""):
        reports.append((stage, done, total))
        if done >= stop_at:
            raise KeyboardInterrupt

    file = tmp_path / "search.safetensors"
    with pytest.raises(KeyboardInterrupt):
        QUICK.run(crowded, device="cpu", progress=stop, checkpoint=file)
    assert all(total == 60 for _, _, total in reports)
    resumed = QUICK.run(crowded, device="cpu", checkpoint=file)
    assert torch.equal(resumed.inputs, whole.inputs)
    assert torch.equal(resumed.history, whole.history)
    assert [path.name for path in tmp_path.iterdir()] == ["search.safetensors"]


def test_stages_side_by_side_equal_stages_alone(crowded):
    exact = WeightDifference(steps=30, precision="float64")
    together = run_together(exact, [crowded, crowded], seeds=[3, 4], device="cpu")
    for seed, found in zip((3, 4), together, strict=True):
        torch.testing.assert_close(
            found.inputs, exact.run(crowded, seed=seed, device="cpu").inputs, rtol=1e-4, atol=1e-5
        )


def test_a_search_that_diverges_in_its_first_stage_is_reported(crowded):
    assert replace(QUICK, learning_rate=1e30).run(crowded, device="cpu").outcome is Outcome.DIVERGED
