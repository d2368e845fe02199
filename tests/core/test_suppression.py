"""Greedy suppression against a slow twin that compares every pair, and its properties."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from exhume.core.suppression import suppress_neighbours


def suppress_slowly(order, is_near):
    """Return the kept items and the groups, one comparison at a time."""
    groups = {}
    for item in order:
        owner = next((kept for kept in groups if is_near(kept, item)), None)
        groups.setdefault(item if owner is None else owner, []).append(item)
    return groups


@given(st.lists(st.integers(0, 20), min_size=1, max_size=15), st.integers(0, 5), st.randoms(use_true_random=False))
def test_groups_are_those_of_the_slow_twin(values, reach, random):
    numbers = torch.tensor(values)
    order = random.sample(range(len(values)), random.randint(1, len(values)))
    found = suppress_neighbours(torch.tensor(order), lambda item: (numbers - numbers[item]).abs() <= reach)
    groups = {kept: sorted(group.nonzero()[:, 0].tolist()) for kept, group in found}
    slow = suppress_slowly(order, lambda one, other: abs(values[one] - values[other]) <= reach)
    assert groups == {kept: sorted(group) for kept, group in slow.items()}
    assert list(groups) == list(slow), "the best item of each group comes first, in order"
    assert sorted(item for group in groups.values() for item in group) == sorted(order)


def test_nothing_is_kept_of_nothing():
    assert list(suppress_neighbours(torch.zeros(0, dtype=torch.long), lambda item: torch.zeros(0).bool())) == []


def test_an_item_stands_for_itself_even_where_it_is_not_near_itself():
    kept = [
        (item, int(group.sum())) for item, group in suppress_neighbours(torch.arange(2), lambda _: torch.zeros(2) > 1)
    ]
    assert kept == [(0, 1), (1, 1)]
