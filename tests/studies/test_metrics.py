"""Counts and scores of studies: they see copies, and nothing in noise."""

from dataclasses import replace

import pytest
import torch

import exhume
from exhume.kernels import InfiniteNTK
from exhume.models.mlp import MLP
from exhume.records import Outcome, Reconstruction
from exhume.studies.metrics import (
    best_matches,
    count_exact,
    count_similar,
    evaluation_numbers,
    infinite_width_accuracy,
    mean_and_std,
    relative_ranks,
)
from exhume.studies.tasks import draw


@pytest.fixture(scope="module")
def data():
    return draw("digits", "all", size=20, held_out=100, seed=0)


@pytest.fixture(scope="module")
def noise():
    return torch.rand(40, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def found(inputs, **diagnostics):
    count = len(inputs)
    return Reconstruction(
        inputs=inputs, certified=torch.zeros(count, dtype=torch.bool), confidence=torch.zeros(count),
        outcome=Outcome.CONVERGED, diagnostics=diagnostics,
    )  # fmt: skip


def test_copies_are_similar_and_noise_is_not(data, noise):
    similar, null, correlated = count_similar(found(data.train.inputs), data)
    assert (similar, correlated) == (20, 20)
    assert null <= 20
    similar, _, correlated = count_similar(found(noise), data)
    assert similar <= 2
    assert correlated <= 3


def test_relative_ranks_are_those_of_an_evaluation(data, noise):
    assert relative_ranks(found(noise), data) == exhume.evaluate(found(noise), data).relative


def test_only_points_fixed_by_edges_count_as_exact(data):
    copies = found(data.train.inputs + 0.01, edges_met=[9, 8, 7])
    assert count_exact(copies, data.train) == 3
    assert count_exact(copies, data.holdout) == 0
    assert count_exact(replace(copies, diagnostics={}), data.train) == 0


def test_the_best_match_of_an_image_is_its_copy(data):
    order = torch.randperm(20, generator=torch.Generator().manual_seed(1))
    best, place = best_matches(data.train.inputs[order], data.train.inputs)
    assert torch.equal(order[place], torch.arange(20))
    torch.testing.assert_close(best, torch.ones(20))


def test_numbers_of_an_evaluation_have_their_null_and_spaced_pictures(data):
    numbers = evaluation_numbers(exhume.evaluate(found(data.train.inputs), data), pictures=3)
    assert (numbers["good"], numbers["exact"], numbers["recovered"]) == (20, 20, 20)
    assert numbers["null_good"] <= 20
    assert len(numbers["curve"]) == 20
    assert numbers["values"] == 64
    assert len(numbers["reconstructed"]) == len(numbers["originals"]) == len(numbers["pair_squares"]) == 3
    torch.testing.assert_close(numbers["reconstructed"], numbers["originals"])


def test_infinite_width_regression_predicts_its_own_training_set(data):
    kernel = InfiniteNTK.of(MLP(width=8, depth=2))
    assert infinite_width_accuracy(data, data.train, kernel, "cpu") == 100.0
    assert 20.0 < infinite_width_accuracy(data, data.holdout, kernel, "cpu") < 100.0


def test_one_value_has_no_deviation():
    assert mean_and_std([3.0]) == {"mean": 3.0, "std": 0.0}
    assert mean_and_std([1.0, 3.0]) == {"mean": 2.0, "std": pytest.approx(2**0.5)}
