"""Separating near-duplicates: missing rows are added, dependent ones dropped, mixed pairs resolved."""

import torch

from exhume.attacks.gates.near_duplicates import keep_independent, separate_near_duplicates
from tests.attacks.gates.victims import mix_rows, solved_problem


def generator():
    return torch.Generator().manual_seed(0)


def test_one_missing_row_is_found():
    problem, rows, _ = solved_problem()
    found = separate_near_duplicates(problem, rows[1:], generator())
    assert float((found @ rows.T).abs().amax(dim=0).min()) > 0.999


def test_a_mixed_row_is_resolved():
    problem, rows, _ = solved_problem()
    found = separate_near_duplicates(problem, mix_rows(rows, place=3, other=5), generator())
    assert float((found @ rows.T).abs().amax(dim=0).min()) > 0.999


def test_many_missing_rows_are_left_to_the_search():
    problem, rows, _ = solved_problem()
    assert torch.equal(separate_near_duplicates(problem, rows[9:], generator()), rows[9:])


def test_rows_that_others_span_are_dropped():
    problem, rows, _ = solved_problem()
    sum_of_two = (rows[0] + rows[1])[None] / (rows[0] + rows[1]).norm()
    assert torch.equal(keep_independent(problem, torch.cat([rows[:2], sum_of_two, rows[2:]])), rows)
