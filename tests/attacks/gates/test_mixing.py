"""Which rows may be mixed into which."""

import itertools
import math
from dataclasses import replace

import pytest
import torch

from exhume.attacks.gates.check import check_rows
from exhume.attacks.gates.mixing import _judge, may_contain
from exhume.attacks.gates.rules import CertificateRules
from exhume.attacks.gates.zeros import find_zeros
from tests.attacks.gates.victims import made_problem, mix_rows, random_rows, shared_difference, solved_problem

PRECISION = CertificateRules().precision


def read_inputs(problem, rows):
    return check_rows(problem, rows).inputs


def find_parts(problem, rows):
    """Return which rows may be mixed into which, with the inputs that the rows imply together."""
    return may_contain(problem, rows, read_inputs(problem, rows) @ problem.basis, is_strict=True)


class TestMayContain:
    def test_true_rows_contain_no_other(self):
        problem, rows, _ = solved_problem()
        assert not bool(find_parts(problem, rows).any())

    @pytest.mark.parametrize("part", [0.01, 0.3, -2.0])
    def test_a_mixture_may_contain_its_parts_and_few_others(self, part):
        problem, rows, _ = solved_problem()
        contained = find_parts(problem, mix_rows(rows, 3, 5, part))
        assert bool(contained[3, 5])
        assert int(contained.sum()) <= 3
        assert int(contained.sum()) == int(contained[3].sum()), "the other rows are as they were"

    def test_three_parts_are_found_too(self):
        problem, rows, _ = solved_problem()
        wrong = mix_rows(mix_rows(rows, 3, 5, 0.4), 3, 7, 0.4)
        assert bool(find_parts(problem, wrong)[3, [5, 7]].all())

    def test_random_rows_may_contain_anything(self):
        # Whatever few zeros a generic vector has, its coefficients may have been chosen for.
        problem, rows, _ = solved_problem()
        wrong = rows.clone()
        wrong[0] = random_rows(problem, 1, seed=3)[0]
        assert bool(find_parts(problem, wrong)[0, 1:].all())

    def test_whatever_is_wrong_is_contained_somewhere(self):
        problem, rows, inputs = solved_problem()
        for place, other, part in ((0, 1, 0.5), (4, 9, 1.0), (12, 2, -0.2)):
            wrong = mix_rows(rows, place, other, part)
            errors = (read_inputs(problem, wrong) - inputs).abs().amax(dim=1)
            is_doubtful = find_parts(problem, wrong).any(dim=0)
            assert bool(is_doubtful[other])
            assert float(errors[~is_doubtful].max()) < PRECISION

    @pytest.mark.parametrize("seed", range(3))
    def test_a_shared_ratio_hides_no_part(self, seed):
        # The difference is zero wherever both inputs fire, which says nothing about what it is made of.
        problem, rows, _ = made_problem(is_ratio_shared=True, seed=seed)
        assert not bool(find_parts(problem, rows).any())
        wrong = rows.clone()
        wrong[0] = shared_difference(problem, rows)
        zeros = find_zeros(problem, wrong)
        assert int((zeros[0] & ~zeros[1]).sum()) > 20, "its zeros alone would clear it"
        contained = find_parts(problem, wrong)
        assert bool(contained[0, 1])
        assert not bool(contained[1:].any())

    @pytest.mark.parametrize("seed", range(3))
    def test_the_row_of_no_input_may_contain_any_other(self, seed):
        # With the difference of two rows in place of one of them, the other has the right row and the wrong input.
        problem, rows, _ = made_problem(is_ratio_shared=True, seed=seed)
        wrong = rows.clone()
        wrong[0] = shared_difference(problem, rows)
        assert bool(find_parts(problem, wrong)[0, 1:].all())

    @pytest.mark.parametrize("seed", range(3))
    def test_zeros_of_a_row_that_no_input_explains_clear_nothing(self, seed):
        # The sum and the difference of two rows span what both span, and the difference is zero where both fire. The
        # constants of two nearly equal inputs cancel in it, so that the input read out for it may be anything.
        problem, rows, _ = made_problem(is_ratio_shared=True, twins=1, closeness=0.05, width=400, seed=seed)
        wrong = rows.clone()
        wrong[0], wrong[1] = (
            shared_difference(problem, rows),
            mix_rows(rows, 1, 0, float((rows[0] @ rows[1]).sign()))[1],
        )
        codes = read_inputs(problem, wrong) @ problem.basis
        codes[0] = random_rows(problem, 1, seed=seed)[0]
        assert not bool(may_contain(problem, wrong, codes)[0, 1]), "by the zeros that it leaves off alone"
        assert bool(may_contain(problem, wrong, codes, is_strict=True)[0, 1])

    def test_one_row_contains_no_other(self):
        problem, rows, _ = made_problem(count=1)
        assert find_parts(problem, rows).tolist() == [[False]]

    def test_a_stricter_rate_doubts_no_less(self):
        problem, rows, _ = solved_problem()
        wrong = mix_rows(rows, part=0.1)
        strict, lax = (replace(problem, certificate=CertificateRules(error_rate=rate)) for rate in (1e-12, 1e-2))
        assert bool((find_parts(strict, wrong) >= find_parts(lax, wrong)).all())


class TestNearDuplicates:
    """Two inputs share nearly all gates, so few zeros tell their rows apart."""

    @pytest.mark.parametrize("seed", range(4))
    def test_mixtures_that_move_an_input_are_noticed(self, seed):
        problem, rows, inputs = made_problem(count=6, width=400, twins=1, closeness=0.1, seed=seed)
        for part, back in itertools.product((0.5, -2.0), (0.0, 0.5)):
            wrong = mix_rows(mix_rows(rows, 0, 1, part), 1, 0, back)
            parts = find_parts(problem, wrong)
            is_doubtful = parts.any(dim=0) | parts.any(dim=1)
            errors = (read_inputs(problem, wrong) - inputs).abs().amax(dim=1)
            assert float(errors.max()) > PRECISION
            assert bool(is_doubtful[errors > PRECISION].all())

    def test_knowing_where_inputs_are_refutes_more(self):
        # Without all rows the inputs are not known, and coincidence alone has to refute a part.
        fewer = more = 0
        for seed in range(8):
            problem, rows, _ = made_problem(count=6, width=200, twins=1, closeness=0.02, seed=seed)
            assert not bool((find_parts(problem, rows) & ~partly_known(problem, rows)).any())
            more += int(find_parts(problem, rows).sum())
            fewer += int(partly_known(problem, rows).sum())
        assert more < fewer


def partly_known(problem, rows):
    """Return which of all rows but the last may be mixed, by coincidence alone, among all."""
    known = may_contain(problem, rows[:-1], (read_inputs(problem, rows) @ problem.basis)[:-1], is_strict=True)
    parts = torch.ones(len(rows), len(rows), dtype=torch.bool)
    parts[:-1, :-1] = known
    return parts


def judge_slowly(any_input, right_input):
    """Return for every row and part the likeliest way in which it can be: loops over all rows that may be involved."""
    count = len(any_input)
    every = range(count)
    result = torch.full_like(any_input, -math.inf)
    for j, part in itertools.permutations(every, 2):
        ways = [float(right_input[j, part])]
        for k in every:
            if k == j:
                continue
            ways.append(float(any_input[j, part] + right_input[k, j]))
            ways.append(float(min(any_input[j, part], any_input[j, k]) + any_input[k, j]))
            ways.extend(float(any_input[j, part] + any_input[k, j] + any_input[i, k]) for i in every if i not in (j, k))
        result[j, part] = max(ways)
    return result


@pytest.mark.parametrize("count", [2, 3, 6])
def test_parts_are_judged_as_loops_over_all_ways_do(count):
    generator = torch.Generator().manual_seed(count)
    any_input = -10 * torch.rand(count, count, generator=generator, dtype=torch.float64)
    right_input = any_input - 5 * torch.rand(count, count, generator=generator, dtype=torch.float64)
    for each in (any_input, right_input):
        each.fill_diagonal_(-math.inf)
    is_other = ~torch.eye(count, dtype=torch.bool)
    fast, slow = _judge(any_input, right_input), judge_slowly(any_input, right_input)
    assert torch.allclose(fast[is_other], slow[is_other], rtol=1e-12)
    assert bool((fast <= any_input + 1e-12)[is_other].all()), "knowing more refutes no less"
