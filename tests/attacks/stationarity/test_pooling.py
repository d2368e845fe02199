"""Pooled runs: agreement tells what the weights led to from what chance did, and duplicates become averages."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from exhume.attacks.stationarity.pooling import agreement, merged


def test_what_two_runs_share_is_agreed_on():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(3, 5, 50, generator=generator)
    inputs[1, 2] = 2 * inputs[0, 4] + 0.3  # scale and brightness do not matter
    agreed = agreement(inputs)
    assert agreed[0, 4] > 0.999
    assert agreed[1, 2] > 0.999
    others = torch.ones(3, 5, dtype=torch.bool)
    others[0, 4] = others[1, 2] = False
    assert float(agreed[others].max()) < 0.7


def test_one_run_agrees_with_nobody():
    assert not agreement(torch.randn(1, 4, 9, generator=torch.Generator().manual_seed(0))).any()


@given(st.integers(1, 12), st.floats(0.5, 1.2), st.integers(0, 1000))
def test_merging_keeps_apart_what_differs_and_loses_nobody(count, similar, seed):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.rand(count, 6, generator=generator)
    confidence = torch.rand(count, generator=generator)
    means, kept, leaders = merged(inputs, confidence, similar)
    assert len(means) == len(kept) == len(leaders) == len(set(leaders)) <= count
    assert bool((kept.diff() <= 0).all())
    assert bool((means >= inputs.amin(0)).all())
    assert bool((means <= inputs.amax(0)).all())
    if similar > 1.0001:
        assert len(means) == count
