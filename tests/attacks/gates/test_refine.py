"""Correcting rows: nearby rows become true ones, true rows stay, and a spoiler is dropped."""

import torch

from exhume.attacks.gates.refine import drop_spoilers, refine_rows
from exhume.attacks.gates.zeros import find_zeros
from tests.attacks.gates.victims import mix_rows, random_rows, solved_problem


def generator():
    return torch.Generator().manual_seed(0)


def test_true_rows_stay():
    problem, rows, _ = solved_problem()
    refined = refine_rows(problem, rows, generator())
    assert float((refined * rows).sum(dim=1).abs().min()) > 1 - 1e-4
    assert torch.equal(drop_spoilers(problem, rows, most=3), rows)
    assert refine_rows(problem, rows[:0], generator()).shape == (0, problem.rank)


def test_a_refined_row_never_has_fewer_zeros():
    problem, rows, _ = solved_problem()
    nearby = rows + 0.05 * random_rows(problem, len(rows))
    nearby = nearby / nearby.norm(dim=1, keepdim=True)
    refined = refine_rows(problem, nearby, generator())
    assert bool((find_zeros(problem, refined).sum(1) >= find_zeros(problem, nearby).sum(1)).all())
    assert int(((refined * rows).sum(dim=1).abs() > 0.999).sum()) >= 12


def test_a_spoiler_is_dropped_and_the_limit_kept():
    problem, rows, _ = solved_problem()
    wrong = mix_rows(rows, place=3, other=5, part=1.0)
    kept = drop_spoilers(problem, wrong, most=1)
    assert len(kept) == 15
    assert not bool((kept == wrong[3]).all(dim=1).any())
    assert torch.equal(drop_spoilers(problem, wrong, most=0), wrong)
