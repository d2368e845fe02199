"""Matchings against their definition, and what must hold for every table of distances."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from exhume.core.errors import ExhumeError
from exhume.evaluation.matching import match

tables = array_shapes(min_dims=2, max_dims=2, max_side=7).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.floats(0, 1e6), unique=True)
)


def greedy_by_definition(table):
    table, pairs = table.copy(), []
    for _ in range(min(table.shape)):
        row, column = np.unravel_index(table.argmin(), table.shape)
        pairs.append([int(row), int(column)])
        table[row], table[:, column] = np.inf, np.inf
    return pairs


def optimal_total_by_trying_all(table):
    if table.shape[0] > table.shape[1]:
        table = table.T
    rows = range(table.shape[0])
    return min(
        sum(table[row, column] for row, column in zip(rows, columns, strict=True))
        for columns in itertools.permutations(range(table.shape[1]), table.shape[0])
    )


def curve(table, how):
    pairs = match(torch.from_numpy(table), how)
    return table[tuple(pairs.numpy().T)]


@given(tables)
def test_greedy_takes_the_smallest_pair_and_removes_both(table):
    assert match(torch.from_numpy(table), "greedy").tolist() == greedy_by_definition(table)


@given(tables.filter(lambda table: max(table.shape) <= 6))
def test_optimal_has_the_smallest_sum(table):
    assert curve(table, "optimal").sum() == pytest.approx(optimal_total_by_trying_all(table))


@given(tables)
def test_optimal_is_never_worse_than_greedy(table):
    assert curve(table, "optimal").sum() <= curve(table, "greedy").sum() * (1 + 1e-12) + 1e-9


@given(tables, st.sampled_from(["greedy", "optimal"]), st.randoms(use_true_random=False))
def test_the_order_of_candidates_and_examples_does_not_matter(table, how, random):
    rows, columns = list(range(table.shape[0])), list(range(table.shape[1]))
    random.shuffle(rows)
    random.shuffle(columns)
    shuffled = table[np.ix_(rows, columns)]
    if how == "greedy":
        np.testing.assert_array_equal(curve(shuffled, how), curve(table, how))
    else:  # two assignments may share the smallest sum
        assert curve(shuffled, how).sum() == pytest.approx(curve(table, how).sum())


@given(tables, st.sampled_from(["greedy", "optimal"]))
def test_a_matching_is_one_to_one_complete_and_ascending(table, how):
    pairs = match(torch.from_numpy(table), how)
    assert len(pairs) == min(table.shape)
    assert len(set(pairs[:, 0].tolist())) == len(set(pairs[:, 1].tolist())) == len(pairs)
    assert (np.diff(curve(table, how)) >= 0).all()


@pytest.mark.parametrize("how", ["greedy", "optimal"])
def test_candidates_that_are_not_finite_are_left_out(how):
    table = torch.tensor([[torch.inf, torch.inf], [3.0, 1.0], [torch.nan, torch.nan]])
    assert match(table, how).tolist() == [[1, 1]]


@pytest.mark.parametrize("how", ["greedy", "optimal"])
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_empty_sets_have_an_empty_matching(how, shape):
    assert match(torch.zeros(shape), how).shape == (0, 2)


def test_an_unknown_matching_is_refused():
    with pytest.raises(ExhumeError, match="greedy, optimal"):
        match(torch.zeros(1, 1), "best")
