"""What is certified: rows that others may contain, errors that noise causes, and reasons for doubt."""

import math
from dataclasses import replace

import pytest
import torch

from exhume.attacks.gates.certificate import Doubt, are_clean, certify, input_errors, may_contain, may_hide
from exhume.attacks.gates.check import check_rows
from exhume.attacks.gates.rules import CertificateRules
from exhume.attacks.gates.zeros import find_zeros
from tests.attacks.gates.victims import made_problem, mix_rows, random_rows, shared_difference, solved_problem

RATE = 1e-3
PRECISION = CertificateRules().precision


def read_inputs(problem, rows):
    return check_rows(problem, rows).inputs


def find_parts(problem, rows, rate=RATE):
    """Return which rows may be mixed into which, with the inputs that the rows imply together."""
    return may_contain(problem, rows, read_inputs(problem, rows) @ problem.basis, rate)


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

    def test_one_row_contains_no_other(self):
        problem, rows, _ = made_problem(count=1)
        assert find_parts(problem, rows).tolist() == [[False]]

    def test_a_stricter_rate_doubts_no_less(self):
        problem, rows, _ = solved_problem()
        wrong = mix_rows(rows, part=0.1)
        assert bool((find_parts(problem, wrong, 1e-12) >= find_parts(problem, wrong, 1e-2)).all())


class TestMayHide:
    def test_nothing_is_hidden_where_all_beyond_the_rank_is_noise(self):
        problem, rows, _ = solved_problem()
        assert problem.hidden is None
        assert not bool(may_hide(problem, rows).any())

    def test_a_difference_with_the_zeros_of_a_row_belongs_to_it(self):
        problem, rows, _ = solved_problem()
        is_on = ~find_zeros(problem, rows)[3] & problem.informative.bool()
        noise = torch.randn(problem.rows.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        effect = is_on * noise
        outside = effect - effect @ problem.rows.T @ problem.rows
        hidden = replace(problem, hidden=(outside / outside.norm())[None])
        assert may_hide(hidden, rows).nonzero()[:, 0].tolist() == [3]


class TestTraces:
    """Nearly equal inputs leave traces in other rows: parts far above noise and far below the entries of a row."""

    def test_zeros_of_true_rows_scatter_as_noise_does(self):
        problem, rows, _ = solved_problem()
        assert bool(are_clean(problem, rows).all())

    def test_a_trace_of_another_row_is_noticed(self):
        problem, rows, _ = made_problem(count=8, width=300)
        traced = mix_rows(rows, 3, 5, 2e-5)
        inputs = read_inputs(problem, traced) @ problem.basis
        assert bool(may_contain(problem, traced, inputs, RATE, is_strict=True)[3, 5])
        log_p = torch.full((len(rows),), -100.0, dtype=torch.float64)
        doubts = certify(problem, check_rows(problem, traced), log_p, 1.0, RATE).doubts
        assert doubts[3] == doubts[5] == Doubt.NEAR_DUPLICATE
        assert doubts.count(Doubt.NONE) == 6

    def test_traces_of_many_rows_scatter_its_zeros(self):
        problem, rows, _ = made_problem(count=8, width=300)
        traced = rows.clone()
        for other in (0, 1, 2, 4, 5, 6, 7):
            traced = mix_rows(traced, 3, other, 2e-5)
        assert are_clean(problem, traced).logical_not().nonzero()[:, 0].tolist() == [3]

    def test_an_optimiser_state_may_have_traces(self):
        problem, rows, _ = solved_problem()
        decayed = replace(problem, after=problem.before)
        assert bool(are_clean(decayed, mix_rows(rows, 3, 5, 2e-5)).all())


class TestInputErrors:
    def test_bounds_hold_for_noise_of_the_stated_size(self):
        """Slow twin: add noise to the change, find the rows again from their zeros, read the inputs out."""
        problem, rows, inputs = solved_problem()
        noise, zeros = 1e-4 * float(problem.strengths[-1]), find_zeros(problem, rows)
        noisy = replace(problem, noise=noise)
        worst = torch.zeros(len(rows), dtype=torch.float64)
        for seed in range(20):
            generator = torch.Generator().manual_seed(seed)
            change = problem.change @ problem.rows
            disturbed = change + noise * torch.randn(change.shape, generator=generator, dtype=torch.float64)
            left, strengths, right = torch.linalg.svd(disturbed, full_matrices=False)
            right = right[: problem.rank]
            found = torch.stack(
                [torch.linalg.eigh(right[:, own] @ right[:, own].T).eigenvectors[:, 0] for own in zeros]
            )
            read = (left[:, : problem.rank] * strengths[: problem.rank]) @ torch.linalg.inv(found)
            worst = torch.maximum(worst, ((read / read[-1]).T - inputs).abs().amax(dim=1))
        bounds = input_errors(noisy, rows)
        assert bool((worst <= bounds).all())
        assert float((worst / bounds).max()) > 0.1, "a bound that is never approached would withdraw true certificates"

    def test_what_noise_does_not_explain_is_added(self):
        problem, rows, _ = solved_problem()
        more = input_errors(replace(problem, unexplained=1e-3), rows) - input_errors(
            replace(problem, unexplained=0.0), rows
        )
        assert float(more.min()) > 0


class TestCertify:
    def certificate(self, problem, rows, log_p=-100.0):
        every = torch.full((len(rows),), log_p, dtype=torch.float64)
        return certify(problem, check_rows(problem, rows), every, 1.0, RATE)

    def test_true_rows_are_certified(self):
        problem, rows, _ = solved_problem()
        certificate = self.certificate(problem, rows)
        assert bool(certificate.is_certified.all())
        assert set(certificate.doubts) == {Doubt.NONE}

    def test_a_wrong_row_costs_only_the_input_that_it_moves(self):
        problem, rows, inputs = solved_problem()
        wrong = mix_rows(rows, 3, 5, 0.02)
        certificate = self.certificate(problem, wrong)
        errors = (read_inputs(problem, wrong) - inputs).abs().amax(dim=1)
        assert float(errors[certificate.is_certified].max()) < PRECISION
        assert not bool(certificate.is_certified[5])
        assert int(certificate.is_certified.sum()) >= len(rows) - 2

    def test_a_difference_with_a_shared_ratio_certifies_no_wrong_input(self):
        problem, rows, inputs = made_problem(is_ratio_shared=True)
        wrong = rows.clone()
        wrong[0] = shared_difference(problem, rows)
        certificate = self.certificate(problem, wrong)
        errors = (read_inputs(problem, wrong) - inputs).abs().amax(dim=1)
        assert float(errors.max()) > PRECISION
        assert float(errors[certificate.is_certified].max()) < PRECISION

    def test_missing_rows_leave_everything_open(self):
        problem, rows, _ = solved_problem()
        certificate = self.certificate(problem, rows[:-1])
        assert set(certificate.doubts) == {Doubt.MISSING_ROWS}
        assert bool(torch.isinf(certificate.errors).all())

    def test_the_first_reason_is_given(self):
        problem, rows, _ = solved_problem()
        assert set(self.certificate(problem, rows, log_p=math.log(0.5)).doubts) == {Doubt.CHANCE}
        noisy = replace(problem, unexplained=1.0)
        assert set(self.certificate(noisy, rows).doubts) == {Doubt.NOISE}
