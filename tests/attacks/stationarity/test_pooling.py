"""Merging near-duplicates: averages under the most confident candidate, and nothing lost."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from exhume.attacks.stationarity.pooling import merge_near_duplicates


@given(st.integers(1, 12), st.floats(0.5, 1.2), st.integers(0, 1000))
def test_merging_keeps_different_candidates_apart_and_loses_none(count, similar, seed):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.rand(count, 6, generator=generator)
    confidence = torch.rand(count, generator=generator)
    means, leaders = merge_near_duplicates(inputs, confidence, similar)
    assert len(means) == len(leaders) == len(set(leaders.tolist())) <= count
    assert bool((confidence[leaders].diff() <= 0).all())
    assert bool((means >= inputs.amin(0) - 1e-6).all())
    assert bool((means <= inputs.amax(0) + 1e-6).all())
    if similar > 1.0001:
        assert torch.equal(means, inputs[leaders])
        assert len(means) == count


def test_noisy_copies_become_their_mean():
    generator = torch.Generator().manual_seed(0)
    pictures = torch.rand(3, 40, generator=generator)
    copies = pictures.repeat(4, 1) + 0.01 * torch.randn(12, 40, generator=generator)
    confidence = torch.rand(12, generator=generator)
    means, leaders = merge_near_duplicates(copies, confidence, 0.95)
    assert len(means) == 3
    for mean, leader in zip(means, leaders.tolist(), strict=True):
        torch.testing.assert_close(mean, copies[leader % 3 :: 3].mean(0))
        assert confidence[leader] == confidence[leader % 3 :: 3].max()
