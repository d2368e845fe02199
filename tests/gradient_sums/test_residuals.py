"""What a gradient sum leaves of its target: by Gram matrices and thin factors as by the matrix itself."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.gradient_sums import residuals
from exhume.gradient_sums.residuals import LowRank, compact, residual

DOUBLE = torch.float64
FEW, MANY = 2, 40  # candidates of layers of ten to thirty units: for the first Gram matrices are cheaper


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def slow(signal, heard, gain, target, metric=None):
    """One run after another, everything written out."""
    if signal.ndim == 4:
        runs = range(signal.shape[1])
        each = [slow(signal[:, r], heard[:, r], gain, target if target.ndim == 2 else target[r], metric) for r in runs]
        squares, motions, reaching = zip(*each, strict=True)
        return torch.stack(squares), torch.stack(motions, 1), torch.stack(reaching, 1)
    left = gain * torch.einsum("pju,pjv->uv", signal, heard) - target
    acts = left if metric is None else left @ metric
    return (left * acts).sum(), heard @ acts.T, signal @ acts


@settings(max_examples=40)
@given(
    candidates=st.sampled_from([1, FEW, MANY]),
    points=st.integers(1, 3),
    runs=st.sampled_from([None, 1, 3]),
    out=st.sampled_from([1, 20, 30]),
    into=st.sampled_from([1, 25]),
    own_target=st.booleans(),
    seed=st.integers(0, 99),
)
def test_every_way_of_computing_is_the_same_as_writing_all_out(candidates, points, runs, out, into, own_target, seed):
    between = () if runs is None else (runs,)
    signal, heard = (drawn(points, *between, candidates, units, seed=seed + units) for units in (out, into))
    target = drawn(*(between if own_target else ()), out, into, seed=seed)
    gain = torch.tensor(0.3, dtype=DOUBLE)
    for one, other in zip(
        residual(signal, heard, gain, target, DOUBLE), slow(signal, heard, gain, target), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("runs", [None, 3])
@pytest.mark.parametrize("candidates", [FEW, MANY])
def test_thin_targets_are_as_good_as_their_matrix(candidates, runs):
    between = () if runs is None else (runs,)
    signal, heard = drawn(2, *between, candidates, 20), drawn(2, *between, candidates, 25, seed=1)
    left, right = drawn(20, 2, seed=2), drawn(2, 25, seed=3)
    thin = LowRank(left, right, float((left @ right).square().sum()))
    for one, other in zip(
        residual(signal, heard, 1.0, thin, DOUBLE), slow(signal, heard, 1.0, left @ right), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_a_metric_weighs_directions_of_what_is_heard():
    signal, heard, target = drawn(1, FEW, 20), drawn(1, FEW, 25, seed=1), drawn(20, 25, seed=2)
    metric = drawn(25, 25, seed=3)
    metric = metric @ metric.T
    for one, other in zip(
        residual(signal, heard, 1.0, target, DOUBLE, metric), slow(signal, heard, 1.0, target, metric), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_few_candidates_never_write_a_matrix_and_many_do(monkeypatch):
    written = []
    outer = residuals.outer
    monkeypatch.setattr(residuals, "outer", lambda *given: written.append(1) or outer(*given))
    for candidates, expected in ((FEW, 0), (MANY, 1)):
        residual(drawn(1, candidates, 30), drawn(1, candidates, 30, seed=1), 1.0, drawn(30, 30), DOUBLE)
        assert len(written) == expected


def test_compact_keeps_a_low_rank_change_and_drops_the_rounding_of_weights():
    change = (1e-2 * drawn(300, 6) @ drawn(6, 200, seed=1)).float()
    noise = 1e-7 * drawn(300, 200, seed=2).float()
    thin = compact(change + noise, rows=10)
    assert isinstance(thin, LowRank)
    assert thin.left.shape == (300, 8)  # six directions, and the next multiple of eight
    assert thin.shape == change.shape
    assert float((thin.written() - change).norm() / change.norm()) < 1e-4
    assert thin.square == pytest.approx(float(change.double().square().sum()), rel=1e-4)


@pytest.mark.parametrize(
    ("matrix", "rows"),
    [(drawn(80, 60), 4), (drawn(80, 1) @ drawn(1, 60), 60), (torch.zeros(80, 60), 4), (drawn(3), 1), (drawn(1, 60), 4)],
    ids=["full rank", "too many rows to gain", "nothing", "a bias", "one output"],
)
def test_compact_leaves_other_matrices_alone(matrix, rows):
    assert compact(matrix, rows) is matrix
