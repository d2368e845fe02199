"""Many runs in one loop: each goes and ends as it would alone."""

import pytest
import torch

from exhume.core.checkpoint import Checkpoint
from exhume.core.errors import ExhumeError
from exhume.optimise import Adam, minimise, minimise_together
from exhume.optimise.adam import INSPECTION_STEPS
from exhume.records import Outcome
from tests.optimise.quadratics import DOUBLE, TARGETS, quadratic, quadratics, start, starts

ONES = (1.0, 1.0, 1.0)


@pytest.mark.parametrize("patience", [0, 60])
def test_every_run_moves_and_ends_as_it_would_alone(patience):
    adam = Adam(steps=400, learning_rates=(0.1,), decay="none", patience=patience, tolerance=0.0)
    together = minimise_together(quadratics, starts(), adam, scales=(1.0, 2.0, 3.0))
    for run, end in enumerate(together):
        alone = minimise(quadratic(run), start(), adam, scale=run + 1.0)
        assert end.steps == alone.steps
        assert end.outcome is alone.outcome
        assert torch.equal(end.variables[0], alone.variables[0])
        assert torch.equal(end.history, alone.history)


def test_every_run_may_have_a_learning_rate_of_its_own():
    rates = torch.tensor([0.1, 0.02, 0.3])
    together = minimise_together(quadratics, starts(), Adam(steps=80, learning_rates=(rates,)), scales=ONES)
    for run, end in enumerate(together):
        alone = minimise(quadratic(run), start(), Adam(steps=80, learning_rates=(float(rates[run]),)))
        assert torch.equal(end.variables[0], alone.variables[0])
        assert torch.equal(end.history, alone.history)


def test_learning_rates_need_one_value_per_run():
    with pytest.raises(ExhumeError, match="one value per run: 3, not"):
        minimise_together(quadratics, starts(), Adam(steps=5, learning_rates=(torch.tensor([0.1, 0.2]),)), scales=ONES)


def test_a_run_that_diverges_stays_where_it_was_and_does_not_disturb_the_others():
    def cliff(variables, elapsed):
        values, (gradient,) = quadratics(variables, elapsed)
        broken = torch.zeros(3, dtype=DOUBLE)
        broken[1] = torch.where(elapsed > 0.4, torch.nan, 0.0)
        return values + broken, (gradient + broken[:, None],)

    adam = Adam(steps=10 * INSPECTION_STEPS, learning_rates=(0.1,))
    broken, whole = (minimise_together(one, starts(), adam, scales=ONES) for one in (cliff, quadratics))
    assert broken[1].outcome is Outcome.DIVERGED
    assert bool(torch.isfinite(broken[1].variables[0]).all())
    assert float((broken[1].variables[0] - TARGETS[1]).norm()) < float(TARGETS[1].norm()), "it got nearer until then"
    assert broken[1].steps < adam.steps
    for run in (0, 2):
        assert torch.equal(broken[run].variables[0], whole[run].variables[0])
        assert broken[run].outcome is not Outcome.DIVERGED


def test_interrupted_runs_end_with_the_same_bits(tmp_path):
    adam = Adam(steps=8 * INSPECTION_STEPS, learning_rates=(0.3,), decay="none", patience=2 * INSPECTION_STEPS)
    whole = minimise_together(quadratics, starts(), adam, scales=ONES)

    def stop(stage, done, total, note=""):
        if done == 4 * INSPECTION_STEPS:
            raise KeyboardInterrupt

    saved = Checkpoint(tmp_path / "search.safetensors", "one", "search")
    with pytest.raises(KeyboardInterrupt):
        minimise_together(quadratics, starts(), adam, scales=ONES, progress=stop, checkpoint=saved)
    resumed = minimise_together(quadratics, starts(), adam, scales=ONES, checkpoint=saved)
    for one, other in zip(resumed, whole, strict=True):
        assert torch.equal(one.variables[0], other.variables[0])
        assert (one.steps, one.outcome, one.value) == (other.steps, other.outcome, other.value)
