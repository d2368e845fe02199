"""How a minimisation ended, judged from its values alone."""

import pytest
import torch

from exhume.optimise.outcomes import MAX_RECORDED, judge_outcome, thin_history
from exhume.records import Outcome


@pytest.mark.parametrize(
    ("history", "outcome"),
    [
        (torch.full((100,), 0.5), Outcome.STALLED),
        (torch.linspace(1.0, 0.2, 100), Outcome.STEPS_EXHAUSTED),
        (torch.tensor([1.0, 0.01]), Outcome.CONVERGED),
        (torch.tensor([1.0, torch.nan]), Outcome.DIVERGED),
        (torch.tensor([1.0, torch.inf, 0.01]), Outcome.DIVERGED),
        (torch.tensor([0.7]), Outcome.STALLED),
    ],
)
def test_the_end_is_judged_from_the_values(history, outcome):
    assert judge_outcome(history, 1.0, 0.05) is outcome


def test_values_are_judged_relative_to_their_scale():
    assert judge_outcome(torch.tensor([100.0, 1.0]), 100.0, 0.05) is Outcome.CONVERGED
    assert judge_outcome(torch.tensor([100.0, 1.0]), 1.0, 0.05) is not Outcome.CONVERGED


def test_a_long_history_is_thinned_and_keeps_both_ends():
    kept = thin_history(torch.arange(12345.0))
    assert len(kept) == MAX_RECORDED
    assert (kept[0], kept[-1]) == (0, 12344)
    assert bool((kept.diff() > 0).all())


def test_a_short_history_stays_as_it_is():
    history = torch.rand(7)
    assert torch.equal(thin_history(history), history)
