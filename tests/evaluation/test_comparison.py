"""Distances to the nearest, against tables held whole."""

import pytest
import torch

from exhume.evaluation import comparison
from exhume.evaluation.distances import UnitScale, squared_distances
from tests.evaluation.synthetic_data import make_data


@pytest.mark.parametrize("size", [1, 7, 8, 20])
def test_neighbours_are_found_slice_by_slice(monkeypatch, size):
    monkeypatch.setattr(comparison, "SLICE", 4)
    data = make_data((1, 8, 8), size)
    scale = UnitScale.of(data)
    table = squared_distances(scale(data.train.inputs), scale(data.train.inputs))
    table.fill_diagonal_(torch.inf)
    torch.testing.assert_close(comparison.neighbour_distances(data.train.inputs, scale), table.amin(1))


def test_nearest_neighbours_are_found_in_both_directions():
    data = make_data((30,), 9)
    scale = UnitScale.of(data)
    candidates = data.holdout.inputs
    beside = comparison.compare(candidates, data.train, scale)
    table = squared_distances(scale(candidates), scale(data.train.inputs))
    torch.testing.assert_close(beside.example_distances, table.amin(0))
    torch.testing.assert_close(beside.nearest_distances, table.amin(1))
    assert beside.nearest_examples.tolist() == table.argmin(1).tolist()
    torch.testing.assert_close(
        comparison.example_distances(candidates, data.train.inputs, scale), beside.example_distances
    )


def test_equal_examples_that_a_candidate_meets_are_infinitely_far():
    data = make_data((30,), 5)
    scale = UnitScale.of(data)
    examples = torch.cat([data.train.inputs, data.train.inputs[:1]])
    ratios = comparison.relative_distances(data.train.inputs[:2], examples, scale)
    assert ratios.isinf().tolist() == [True, False, False, False, False, True]
    assert float(ratios[1]) == 0.0
    others = squared_distances(scale(examples[2:5]), scale(data.train.inputs[:2])).amin(1)
    torch.testing.assert_close(ratios[2:5], others / comparison.neighbour_distances(examples, scale)[2:5])
