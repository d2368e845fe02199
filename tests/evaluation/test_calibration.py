"""Ranks against the null: valid at every size, with the resolution of a small null stated."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve

from exhume.evaluation.calibration import auc, calibrate, chance_of_count, level, p_values, recovered, roc

distances = st.lists(st.integers(0, 8).map(float), min_size=1, max_size=12).map(
    lambda values: torch.tensor(values, dtype=torch.float64)
)


def draws(count, size, seed):
    """Return pairs of a training and a held-out sample of the same distribution."""
    return torch.rand(count, 2, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(distances, distances)
def test_a_p_value_is_the_rank_among_the_null(train, null):
    slow = [(1 + sum(h <= t for h in null.tolist())) / (1 + len(null)) for t in train.tolist()]
    assert p_values(train, null).tolist() == pytest.approx(slow)


@given(distances, distances, st.sampled_from([0.0, 0.01, 0.1, 0.25, 0.5]))
def test_recovered_means_nearer_than_all_but_a_fraction_of_the_null(train, null, fpr):
    slow = [sum(h <= t for h in null.tolist()) / len(null) <= fpr + 1e-9 for t in train.tolist()]
    assert recovered(train, null, fpr).tolist() == slow


@given(distances, distances)
def test_the_area_under_the_curve_counts_pairs_and_is_the_area(positive, negative):
    labels = [1] * len(positive) + [0] * len(negative)
    scores = torch.cat([-positive, -negative])
    assert auc(positive, negative) == pytest.approx(roc_auc_score(labels, scores))
    false, true = roc(positive, negative)
    assert auc(positive, negative) == pytest.approx(torch.trapezoid(true, false).item())


@given(distances, distances)
def test_the_roc_agrees_with_scikit_learn(positive, negative):
    labels = [1] * len(positive) + [0] * len(negative)
    false, true, _ = roc_curve(labels, torch.cat([-positive, -negative]), drop_intermediate=False)
    ours_false, ours_true = roc(positive, negative)
    assert ours_false.tolist() == pytest.approx(false.tolist())
    assert ours_true.tolist() == pytest.approx(true.tolist())


@pytest.mark.parametrize("size", [10, 40])
def test_p_values_are_uniform_under_the_null(size):
    pooled = torch.cat([p_values(train, null) for train, null in draws(2000, size, seed=size)])
    grid = torch.arange(1, size + 2).double() / (size + 1)
    observed = torch.stack([(pooled <= cut + 1e-9).double().mean() for cut in grid])
    # 2000 dependent groups: the deviation of a mean of group fractions is at most 0.5 / sqrt(2000)
    assert (observed - grid).abs().max() < 4 * 0.5 / math.sqrt(2000)


@pytest.mark.parametrize("fpr", [0.01, 0.1])
@pytest.mark.parametrize("size", [15, 40])
def test_the_bound_is_the_false_positive_rate_and_chance_the_odds_of_the_count(size, fpr):
    levels = [level(train, null, fpr) for train, null in draws(1500, size, seed=3)]
    rate = sum(one.recovered for one in levels) / (1500 * size)
    assert rate == pytest.approx(levels[0].bound, abs=4 * 0.5 / math.sqrt(1500) / 2)
    for odds in (0.05, 0.25, 0.5):
        flukes = sum(one.chance <= odds for one in levels) / 1500
        assert flukes <= odds + 4 * math.sqrt(odds * (1 - odds) / 1500)
    swapped = sum(one.holdout_recovered for one in levels) / (1500 * size)
    assert swapped == pytest.approx(rate, abs=0.03)


def test_chance_is_the_exact_distribution_over_all_orders():
    # one training example before all three held-out ones: a quarter of the orders of four
    assert level(torch.tensor([0.0]), torch.tensor([1.0, 2.0, 3.0]), 0.01).chance == pytest.approx(1 / 4)
    # both of two before both of two: one of six choices of places
    assert level(torch.tensor([0.0, 0.1]), torch.tensor([1.0, 2.0]), 0.01).chance == pytest.approx(1 / 6)
    assert level(torch.tensor([5.0]), torch.tensor([1.0]), 0.01).chance == 1.0


def test_a_small_null_states_its_resolution():
    train, null = torch.zeros(20), torch.ones(20)
    small = calibrate(train, null)
    assert small.smallest_fpr == pytest.approx(1 / 21)
    assert small.level(0.001).recovered == 20
    assert small.level(0.001).bound == pytest.approx(1 / 21)
    large = calibrate(torch.zeros(20), torch.ones(5000))
    assert large.level(0.001).bound == pytest.approx(6 / 5001)


def test_copies_of_held_out_examples_recover_nothing():
    result = calibrate(torch.ones(30), torch.zeros(30))
    assert [one.recovered for one in result.levels] == [0, 0]
    assert [one.holdout_recovered for one in result.levels] == [30, 30]
    assert result.p_values.tolist() == [1.0] * 30
    assert result.auc == 0.0


def test_no_candidates_recover_nothing():
    far = torch.full((4,), torch.inf)
    result = calibrate(far, far)
    assert result.level(0.01).recovered == 0
    assert result.auc == 0.5
    assert result.p_values.tolist() == [1.0] * 4


@pytest.mark.parametrize(("train", "holdout"), [(3, 5), (10, 10), (7, 1), (40, 25)])
def test_the_chance_of_a_count_is_the_share_of_draws_that_reach_it(train, holdout):
    for drawn in range(train + holdout + 1):
        for count in range(min(drawn, train) + 1):
            ways = sum(math.comb(train, hit) * math.comb(holdout, drawn - hit) for hit in range(count, drawn + 1))
            slow = ways / math.comb(train + holdout, drawn)
            assert chance_of_count(count, drawn, train, holdout) == pytest.approx(slow, rel=1e-9)
