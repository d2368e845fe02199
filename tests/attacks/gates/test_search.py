"""Searching for rows: predictions against true rows, and searches near and far from true inputs."""

import pytest
import torch

from exhume.attacks.gates.search import minimise_weighted_norm, predict_rows, search_rows
from exhume.attacks.gates.seeds import draw_starts
from tests.attacks.gates.victims import solved_problem


def cosines(left, right):
    return torch.cosine_similarity(left, right).abs()


def test_backpropagation_predicts_the_rows_of_lazy_training():
    problem, rows, inputs = solved_problem(512)
    assert float(cosines(predict_rows(problem, inputs), rows).min()) > 0.9


def test_the_smallest_row_is_the_smallest_eigenvector():
    problem, rows, _ = solved_problem(512)
    weights = torch.rand(3, problem.rows.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = minimise_weighted_norm(problem, rows[:3], weights, 2000)
    for row, weight in zip(found, weights, strict=True):
        smallest = torch.linalg.eigh((problem.directions * weight) @ problem.directions.T).eigenvectors[:, 0]
        assert float((row @ smallest).abs()) > 1 - 1e-6


def test_a_search_from_the_true_inputs_returns_their_rows():
    problem, rows, inputs = solved_problem(512)
    arrived = cosines(search_rows(problem, inputs, problem.basis), rows) > 0.999
    assert int(arrived.sum()) >= len(rows) - 4


def test_a_search_from_noise_finds_most_rows():
    problem, rows, _ = solved_problem(512)
    starts = draw_starts(problem, problem.basis, problem.strengths, 128, torch.Generator().manual_seed(0))
    found = search_rows(problem, starts, problem.basis)
    hit = (found @ rows.T).abs() > 0.999
    assert int(hit.any(dim=0).sum()) >= 10


def test_a_search_calls_back_in_every_iteration_and_can_be_stopped_there():
    problem, _, inputs = solved_problem()
    calls = []

    class StopError(Exception):
        pass

    def stop_at_third():
        calls.append(None)
        if len(calls) == 3:
            raise StopError

    with pytest.raises(StopError):
        search_rows(problem, inputs[:2], problem.basis, stop_at_third)
    assert len(calls) == 3
