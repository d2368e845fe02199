"""Residuals of gradient sums: by Gram matrices and low-rank factors as by the matrix itself."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.gradient_sums import residuals
from exhume.gradient_sums.residuals import LowRank, compact, layer_residual
from tests.gradient_sums.networks import DOUBLE, assert_close, random

FEW, MANY = 2, 40  # candidates; with layers of 20 to 30 units, Gram matrices are cheaper for few of them


def slow(signals, inputs, gain, target, metric=None):
    """Compute one run after another with the matrix written out."""
    if signals.ndim == 4:
        runs = range(signals.shape[1])
        each = [
            slow(signals[:, r], inputs[:, r], gain, target if target.ndim == 2 else target[r], metric) for r in runs
        ]
        squares, forward, backward = zip(*each, strict=True)
        return torch.stack(squares), torch.stack(forward, 1), torch.stack(backward, 1)
    left = gain * torch.einsum("pju,pjv->uv", signals, inputs) - target
    acts = left if metric is None else left @ metric
    return (left * acts).sum(), inputs @ acts.T, signals @ acts


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
def test_every_way_of_computing_agrees_with_the_matrix(candidates, points, runs, out, into, own_target, seed):
    between = () if runs is None else (runs,)
    signals, inputs = (random(points, *between, candidates, units, seed=seed + units) for units in (out, into))
    target = random(*(between if own_target else ()), out, into, seed=seed)
    gain = 0.3
    assert_close(layer_residual(signals, inputs, gain, target, DOUBLE), slow(signals, inputs, gain, target), atol=1e-10)


@pytest.mark.parametrize("runs", [None, 3])
@pytest.mark.parametrize("candidates", [FEW, MANY])
def test_low_rank_targets_agree_with_their_matrix(candidates, runs):
    between = () if runs is None else (runs,)
    signals, inputs = random(2, *between, candidates, 20), random(2, *between, candidates, 25, seed=1)
    left, right = random(20, 2, seed=2), random(2, 25, seed=3)
    thin = LowRank(left, right, float((left @ right).square().sum()))
    for one, other in zip(
        layer_residual(signals, inputs, 1.0, thin, DOUBLE),
        slow(signals, inputs, 1.0, left @ right),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_a_metric_weights_directions_of_the_inputs():
    signals, inputs, target = random(1, FEW, 20), random(1, FEW, 25, seed=1), random(20, 25, seed=2)
    metric = random(25, 25, seed=3)
    metric = metric @ metric.T
    for one, other in zip(
        layer_residual(signals, inputs, 1.0, target, DOUBLE, metric),
        slow(signals, inputs, 1.0, target, metric),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_only_many_candidates_need_the_matrix(monkeypatch):
    written = []
    sum_outer_products = residuals.sum_outer_products
    monkeypatch.setattr(
        residuals,
        "sum_outer_products",
        lambda *given, **named: written.append(1) or sum_outer_products(*given, **named),
    )
    for candidates, expected in ((FEW, 0), (MANY, 1)):
        layer_residual(random(1, candidates, 30), random(1, candidates, 30, seed=1), 1.0, random(30, 30), DOUBLE)
        assert len(written) == expected


def test_compact_keeps_a_low_rank_change_and_drops_the_rounding_of_weights():
    change = (1e-2 * random(300, 6) @ random(6, 200, seed=1)).float()
    noise = 1e-7 * random(300, 200, seed=2).float()
    thin = compact(change + noise, rows=10)
    assert isinstance(thin, LowRank)
    assert thin.left.shape == (300, 8)  # six directions, and the next multiple of eight
    assert thin.shape == change.shape
    assert float((thin.to_matrix() - change).norm() / change.norm()) < 1e-4
    assert thin.square == pytest.approx(float(change.double().square().sum()), rel=1e-4)


@pytest.mark.parametrize(
    ("matrix", "rows"),
    [
        (random(80, 60), 4),
        (random(80, 1) @ random(1, 60), 60),
        (torch.zeros(80, 60), 4),
        (random(3), 1),
        (random(1, 60), 4),
    ],
    ids=["full rank", "too many rows to gain", "nothing", "a bias", "one output"],
)
def test_compact_leaves_other_matrices_alone(matrix, rows):
    assert compact(matrix, rows) is matrix


def test_known_effects_are_no_part_of_the_residual():
    signals, inputs, target = random(1, FEW, 20), random(1, FEW, 25, seed=1), random(20, 25, seed=2)
    known = torch.linalg.qr(random(20, 3, seed=3)).Q.T
    moved = target + known.T @ random(3, 25, seed=4)
    without = torch.eye(20, dtype=DOUBLE) - known.T @ known
    found = layer_residual(signals, inputs, 1.0, target, DOUBLE, None, known)
    for other in (
        layer_residual(signals, inputs, 1.0, moved, DOUBLE, None, known),
        slow(signals @ without, inputs, 1.0, without @ target),
    ):
        torch.testing.assert_close(found.square, other[0], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(found.forward, inputs @ (without @ (signals[0].T @ inputs[0] - target)).T)
    torch.testing.assert_close(found.backward, signals @ without @ (signals[0].T @ inputs[0] - target))
