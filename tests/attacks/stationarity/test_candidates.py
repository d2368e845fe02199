"""From runs to candidates: stuck runs are left out, agreement is confidence, pixels lie in their range."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from exhume.attacks.stationarity.candidates import collect_candidates, merge_near_duplicates, to_pixels
from exhume.attacks.stationarity.runs import FinishedRuns
from exhume.core.run_context import RunContext
from exhume.records import AttackerView
from tests.attacks.stationarity.test_runs import pose


def collect(free, residuals, similar=0.95):
    raw = torch.rand(free.shape[:2], generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    runs = FinishedRuns(free=free, raw=raw, residuals=torch.tensor(residuals), history=torch.zeros(1))
    view = AttackerView(model=torch.nn.Identity(), final={}, input_shape=(1, 2, 3))
    return collect_candidates(
        view,
        pose(),
        runs,
        similar=similar,
        edges=False,
        error_rate=1e-3,
        context=RunContext.start(seed=0),
    )


def draw(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_runs_that_got_stuck_are_left_out():
    found = collect(draw(3, 4, 6), [0.5, 0.2, 0.3], similar=1.1)
    assert found.kept_runs.tolist() == [1, 2]
    assert len(found.inputs) == len(found.duals) == len(found.confidence) == 8
    assert found.exact == 0
    assert not bool(found.certified.any())
    assert found.doubts == ["it was found by the search, and too few edges meet there"] * 8


def test_a_candidate_of_two_runs_is_averaged_and_sure():
    free = draw(2, 4, 6)
    free[1, 2] = 1.02 * free[0, 3]
    found = collect(free, [0.2, 0.2])
    assert float(found.confidence[0]) > 0.999
    torch.testing.assert_close(found.inputs[0], 1.01 * free[0, 3])
    assert len(found.inputs) <= 7


def pixel_view(bounds):
    return AttackerView(
        model=torch.nn.Identity(), final={}, input_shape=(1, 2, 2), bounds=bounds, offset=torch.full((1, 2, 2), 0.5)
    )


def test_pixels_are_clamped_or_stretched_to_their_range():
    inputs = torch.tensor([[-0.1, 0.0, 0.1, 0.3], [-2.0, 0.0, 0.0, 2.0]])
    view = pixel_view((0.0, 1.0))
    plain = to_pixels(view, inputs, stretch=False)
    torch.testing.assert_close(plain.flatten(1), (inputs + 0.5).clamp(0, 1))
    stretched = to_pixels(view, inputs, stretch=True)
    assert stretched.shape == (2, 1, 2, 2)
    assert stretched.flatten(1).amin(1).tolist() == [0.0, 0.0]
    assert stretched.flatten(1).amax(1).tolist() == [1.0, 1.0]
    torch.testing.assert_close(to_pixels(pixel_view(None), inputs, stretch=True).flatten(1), inputs + 0.5)


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
