"""Rows in the space of a few others."""

import pytest
import torch

from exhume.attacks.gates.exchange import read_codes
from exhume.attacks.gates.families import rows_in_families
from exhume.attacks.gates.fit import orient_codes
from exhume.attacks.gates.mixing import may_contain
from tests.attacks.gates.victims import cosines, made_problem, mix_rows, solved_problem


def search(problem, rows):
    codes = orient_codes(problem, rows, read_codes(problem, rows))
    parts = may_contain(problem, rows, codes)
    return rows_in_families(problem, rows, codes, parts, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("seed", range(3))
def test_mixtures_of_near_duplicates_are_taken_apart(seed):
    problem, rows, _ = made_problem(count=8, width=400, twins=3, closeness=0.2, seed=seed)
    wrong = mix_rows(mix_rows(mix_rows(rows, 0, 1, 0.5), 0, 2, -0.7), 3, 2, 0.4)
    found = search(problem, wrong)
    assert float(cosines(rows[[0, 3]], found).amax(dim=1).min()) > 1 - 1e-8


def test_nothing_is_proposed_where_nothing_is_mixed():
    problem, rows, _ = solved_problem()
    assert len(search(problem, rows)) == 0
