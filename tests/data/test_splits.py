"""Balanced draws: disjoint, equal, repeatable."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.core.errors import DataError
from exhume.data.splits import Draw, draw_balanced, find_repeats

quick = settings(max_examples=80)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@st.composite
def draws(draw: st.DrawFn) -> tuple[torch.Tensor, int, int | None]:
    """Labels with some left out (-1), the number of classes, and a size that fits."""
    counts = draw(st.lists(st.integers(2, 12), min_size=2, max_size=5))
    outsiders = draw(st.integers(0, 5))
    labels = torch.cat(
        [torch.full((count,), label) for label, count in enumerate(counts)] + [-torch.ones(outsiders).long()]
    )
    labels = labels[torch.randperm(len(labels), generator=generator(draw(st.integers(0, 99))))]
    most = len(counts) * (min(counts) // 2)
    return labels, len(counts), draw(st.none() | st.integers(len(counts), most))


def check(result: Draw, labels: torch.Tensor, classes: int, size: int | None) -> None:
    train, holdout, rest = (set(part.tolist()) for part in (result.train, result.holdout, result.rest))
    assert not train & holdout
    assert not (train | holdout) & rest
    assert train | holdout | rest == set((labels >= 0).nonzero()[:, 0].tolist())
    assert len(result.train) == len(train)
    in_train, in_holdout = (torch.bincount(labels[part], minlength=classes) for part in (result.train, result.holdout))
    assert torch.equal(in_train, in_holdout)
    assert int(in_train.max() - in_train.min()) <= 1
    assert size is None or len(train) == size


@quick
@given(case=draws(), seed=st.integers(0, 2**32))
def test_draws_are_disjoint_balanced_and_repeatable(case: tuple[torch.Tensor, int, int | None], seed: int) -> None:
    labels, classes, size = case
    names = [f"class {index}" for index in range(classes)]
    result = draw_balanced(labels, names, size, generator(seed))
    check(result, labels, classes, size)
    again = draw_balanced(labels, names, size, generator(seed))
    for part in ("train", "holdout", "rest"):
        assert torch.equal(getattr(result, part), getattr(again, part))


@quick
@given(case=draws(), seed=st.integers(0, 2**32))
def test_smaller_draws_lie_within_larger_ones(case: tuple[torch.Tensor, int, int | None], seed: int) -> None:
    labels, classes, size = case
    names = [f"class {index}" for index in range(classes)]
    largest, smaller = (draw_balanced(labels, names, wanted, generator(seed)) for wanted in (None, size))
    if size is not None:
        assert set(smaller.train.tolist()) <= set(largest.train.tolist())
        assert set(smaller.holdout.tolist()) <= set(largest.holdout.tolist())


def test_seeds_give_different_draws() -> None:
    labels = torch.arange(200) % 2
    drawn = [tuple(sorted(draw_balanced(labels, "ab", 20, generator(seed)).train.tolist())) for seed in range(20)]
    assert len(set(drawn)) == 20


def test_every_example_is_equally_likely() -> None:
    """2 000 draws of 4 of 20: each example is in about a fifth of them, within five standard deviations."""
    labels = torch.arange(20) % 2
    hits = torch.zeros(20)
    for seed in range(2_000):
        hits[draw_balanced(labels, "ab", 4, generator(seed)).train] += 1
    assert float((hits - 400).abs().max()) < 5 * (2_000 * 0.2 * 0.8) ** 0.5


def test_classes_that_do_not_divide_the_size_differ_by_one() -> None:
    labels = torch.arange(60) % 3
    assert torch.bincount(labels[draw_balanced(labels, "abc", 11, generator(0)).train]).tolist() == [4, 4, 3]


@pytest.mark.parametrize(
    ("counts", "size", "message"),
    [
        ((10, 4), 6, "needs 3 examples of class 'b' and as many held out, but there are 4; the largest .* is 4"),
        ((10, 10), 1, "too small for 2 classes"),
        ((10, 10), 0, "too small"),
        ((10, 1), None, "'b' has 1 distinct example; it needs at least two"),
        ((10, 0), None, "'b' has 0 distinct examples"),
    ],
)
def test_a_size_beyond_the_data_is_refused_with_advice(counts: tuple[int, int], size: int | None, message: str) -> None:
    labels = torch.cat([torch.full((count,), label) for label, count in enumerate(counts)])
    with pytest.raises(DataError, match=message):
        draw_balanced(labels, "ab", size, generator(0))


def test_repeats_are_found_for_any_type() -> None:
    inputs = torch.tensor([[1, 2], [3, 4], [1, 2], [1, 2], [4, 3]])
    for dtype in (torch.uint8, torch.float32, torch.float64):
        assert find_repeats(inputs.to(dtype)).tolist() == [2, 3]
