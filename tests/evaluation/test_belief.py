"""Beliefs: isotonic regression, error bars that cover, and calibration on new candidates."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.isotonic import IsotonicRegression

from exhume.core.errors import ExhumeError
from exhume.evaluation.belief import Belief, design_effect, interval, learn_belief, reliability

samples = st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=40)


def drawn(count, seed, groups=1, shared=0.0):
    """Return scores, truths that follow them (P(true) = score), and groups; ``shared`` moves whole groups together."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(count, generator=generator, dtype=torch.float64)
    group = torch.randint(groups, (count,), generator=generator)
    shift = shared * torch.randn(groups, generator=generator, dtype=torch.float64)
    chances = (scores + shift[group]).clamp(0, 1)
    return scores, torch.rand(count, generator=generator, dtype=torch.float64) < chances, group


@given(samples)
def test_blocks_of_one_score_are_isotonic_regression(pairs):
    scores, truth = torch.tensor([float(s) for s, _ in pairs]), torch.tensor([t for _, t in pairs])
    belief = learn_belief(scores, truth, least=1)
    fitted = IsotonicRegression().fit_transform(scores.numpy(), truth.double().numpy())
    blocks = torch.bucketize(scores.double(), belief.cuts, right=True)
    assert (belief.true / belief.total)[blocks].tolist() == pytest.approx(fitted.tolist())


@given(samples, st.integers(1, 10))
def test_a_belief_is_monotone_and_counts_every_candidate_once(pairs, least):
    scores, truth = torch.tensor([float(s) for s, _ in pairs]), torch.tensor([t for _, t in pairs])
    belief = learn_belief(scores, truth, least=least)
    assert int(belief.total.sum()) == len(pairs)
    assert int(belief.true.sum()) == int(truth.sum())
    assert bool((belief.total >= min(least, len(pairs))).all())
    ladder = belief.probability(torch.linspace(-1, 7, 50))
    assert bool(((ladder > 0) & (ladder < 1)).all())
    bars = belief.interval(torch.linspace(-1, 7, 50))
    assert bool((bars[:, 0] <= ladder).all() and (ladder <= bars[:, 1]).all())
    fractions = belief.true / belief.total
    assert bool((fractions.diff() > 0).all())


def test_a_belief_survives_json():
    belief = learn_belief(*drawn(300, seed=0, groups=5))
    again = Belief.from_json(json.loads(json.dumps(belief.to_json())))
    scores = torch.rand(20, dtype=torch.float64)
    assert torch.equal(belief.probability(scores), again.probability(scores))
    assert torch.equal(belief.interval(scores), again.interval(scores))


def test_a_belief_holds_on_candidates_it_has_not_seen():
    belief = learn_belief(*drawn(4000, seed=1)[:2])
    scores, truth, _ = drawn(4000, seed=2)
    checked = reliability(belief.probability(scores), truth, bars=belief.interval(scores))
    assert checked.error < 0.03
    assert checked.holding >= len(checked.bins) - 1
    assert sum(one.total for one in checked.bins) == 4000


def test_an_uninformative_score_gives_the_same_belief_to_all():
    scores, truth, _ = drawn(2000, seed=3)
    shuffled = truth[torch.randperm(2000, generator=torch.Generator().manual_seed(0))]
    spread = learn_belief(scores, shuffled, least=200).probability(scores)
    assert float(spread.max() - spread.min()) < 0.15
    assert reliability(spread, shuffled).error < 0.03


@pytest.mark.parametrize("groups", [1, 8])
def test_overconfidence_is_detected_with_and_without_groups(groups):
    scores, truth, group = drawn(2000, seed=4, groups=groups)
    boast = 0.5 + 0.5 * scores
    checked = reliability(boast, truth, group)
    assert checked.error > 0.15
    assert checked.holding <= 2


def test_error_bars_cover_the_truth_at_their_nominal_rate():
    generator = torch.Generator().manual_seed(5)
    for chance in (0.02, 0.3, 0.9):
        counts = torch.binomial(torch.full((400,), 60.0), torch.full((400,), chance), generator=generator)
        covered = [low <= chance <= high for low, high in (interval(int(count), 60) for count in counts)]
        assert sum(covered) / 400 >= 0.93


@given(st.integers(0, 30), st.integers(0, 30))
def test_error_bars_are_clopper_and_pearson(true, false):
    if true + false == 0:
        return
    exact = binomtest(true, true + false).proportion_ci(0.95, "exact")
    assert interval(true, true + false) == pytest.approx((exact.low, exact.high), abs=1e-9)


def test_groups_that_move_together_widen_error_bars():
    scores, truth, group = drawn(3000, seed=6, groups=10, shared=0.3)
    assert design_effect(scores, truth, group) > 5
    alone = drawn(3000, seed=6, groups=10)
    assert design_effect(alone[0], alone[1], alone[2]) < 2.5
    narrow, wide = (reliability(scores, truth, groups).bins[3] for groups in (None, group))
    assert wide.high - wide.low > narrow.high - narrow.low


def test_few_groups_widen_error_bars_more_than_many():
    def width(groups):
        scores, truth, group = drawn(600, seed=7, groups=groups)
        even = torch.full_like(scores, 0.5)
        return design_effect(even, truth, group)

    assert width(3) > 4.5, "two degrees of freedom: (4.30 / 1.96)²"
    assert width(60) < 2.0


def test_a_belief_needs_data():
    with pytest.raises(ExhumeError, match="at least one"):
        learn_belief(torch.zeros(0), torch.zeros(0, dtype=torch.bool))
    with pytest.raises(ExhumeError, match="finite"):
        learn_belief(torch.tensor([torch.nan]), torch.tensor([True]))
