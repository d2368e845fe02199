"""Rows of given inputs: found, sharpened to the truth from nearby, and each kept once."""

import torch

from exhume.attacks.gates.rows import drop_repeats, find_rows, minimise_weighted_norm, sharpen
from tests.attacks.gates.victims import random_rows, solved_problem


def test_the_smallest_row_is_the_smallest_eigenvector():
    problem, rows, _ = solved_problem(512)
    weights = torch.rand(3, problem.rows.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = minimise_weighted_norm(problem, rows[:3], weights, 2000)
    for row, weight in zip(found, weights, strict=True):
        smallest = torch.linalg.eigh((problem.rows * weight) @ problem.rows.T).eigenvectors[:, 0]
        assert float((row @ smallest).abs()) > 1 - 1e-6


def test_true_rows_stay_when_sharpened():
    problem, rows, _ = solved_problem()
    assert float((sharpen(problem, rows) * rows).sum(dim=1).abs().min()) > 1 - 1e-5


def test_true_rows_are_reached_by_sharpening_from_nearby():
    problem, rows, _ = solved_problem()
    nearby = rows + 0.02 * random_rows(problem, len(rows))
    sharp = sharpen(problem, nearby / nearby.norm(dim=1, keepdim=True))
    assert float((sharp * rows).sum(dim=1).abs().min()) > 1 - 1e-4


def test_rows_of_true_inputs_are_found():
    problem, rows, inputs = solved_problem()
    found = find_rows(problem, inputs, torch.Generator().manual_seed(0), tries=4)
    assert found.shape == (4 * len(inputs), problem.rank)
    cosines = (found @ rows.T).abs().reshape(len(inputs), 4, -1).amax(dim=1).diagonal()
    assert int((cosines > 0.999).sum()) >= 14


def test_rows_are_kept_once_up_to_sign():
    problem, rows, _ = solved_problem()
    assert torch.equal(drop_repeats(torch.cat([rows, -rows, rows[:3]]), 0.9995), rows)
    assert torch.equal(drop_repeats(rows[:0], 0.9995), rows[:0])
    assert problem.rank == 16
