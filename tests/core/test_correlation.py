"""Correlations against numpy, and agreement between runs against a loop over pairs."""

import numpy as np
import pytest
import torch

from exhume.core import correlation
from exhume.core.correlation import agreement_between_runs, standardise


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_inner_products_of_standardised_inputs_are_correlations():
    inputs = draw(4, 2, 3)
    unit = standardise(inputs)
    torch.testing.assert_close(unit @ unit.T, torch.from_numpy(np.corrcoef(inputs.flatten(1).numpy())))
    assert not standardise(torch.full((1, 5), 0.3)).any(), "constant inputs correlate with nothing"


def slow_agreement(inputs, run):
    best = torch.zeros(len(inputs), dtype=torch.float64)
    for one in range(len(inputs)):
        for other in range(len(inputs)):
            if run[one] != run[other]:
                best[one] = max(best[one], np.corrcoef(inputs[one], inputs[other])[0, 1])
    return best


@pytest.mark.parametrize("rows_at_once", [2, 4096])
def test_agreement_is_that_of_a_loop_over_pairs(monkeypatch, rows_at_once):
    monkeypatch.setattr(correlation, "ROWS_AT_ONCE", rows_at_once)
    inputs, run = draw(7, 6), torch.tensor([0, 0, 1, 1, 2, 2, 2])
    torch.testing.assert_close(agreement_between_runs(inputs, run), slow_agreement(inputs, run))


def test_runs_agree_on_the_candidates_they_share():
    inputs, run = draw(15, 50), torch.arange(15) // 5
    inputs[7] = 2 * inputs[4] + 0.3  # scale and brightness do not matter
    inputs[1] = inputs[0]  # repetitions within a run do not count
    agreed = agreement_between_runs(inputs, run)
    assert float(agreed[[4, 7]].min()) > 0.999
    others = torch.ones(15, dtype=torch.bool)
    others[[4, 7]] = False
    assert float(agreed[others].max()) < 0.7


def test_a_single_run_and_no_candidates_have_no_agreement():
    assert not agreement_between_runs(draw(4, 9), torch.zeros(4, dtype=torch.long)).any()
    assert agreement_between_runs(draw(0, 9), torch.zeros(0, dtype=torch.long)).shape == (0,)
