"""What is certified: rows that others may contain, and reasons for doubt."""

import math
from dataclasses import replace

import torch

from exhume.attacks.gates.certificate import Doubt, are_clean, certify, may_hide, may_leave_traces
from exhume.attacks.gates.check import check_rows
from exhume.attacks.gates.mixing import may_contain
from exhume.attacks.gates.rules import CertificateRules
from exhume.attacks.gates.zeros import find_zeros
from tests.attacks.gates.victims import made_problem, mix_rows, shared_difference, solved_problem

PRECISION = CertificateRules().precision


def read_inputs(problem, rows):
    return check_rows(problem, rows).inputs


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
        assert bool(may_contain(problem, traced, inputs, is_strict=True)[3, 5])
        log_p = torch.full((len(rows),), -100.0, dtype=torch.float64)
        doubts = certify(problem, check_rows(problem, traced), log_p, 1.0).doubts
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


class TestCertify:
    def certificate(self, problem, rows, log_p=-100.0):
        every = torch.full((len(rows),), log_p, dtype=torch.float64)
        return certify(problem, check_rows(problem, rows), every, 1.0)

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
        assert bool((errors[certificate.is_certified] < PRECISION).all())

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


def test_a_row_that_leaves_traces_in_another_is_suspected_in_a_state():
    problem, rows, inputs = made_problem(count=8, width=300)
    state, nothing = replace(problem, after=problem.before), torch.zeros(8, 8, dtype=torch.bool)
    assert not bool(may_leave_traces(state, rows, inputs, nothing).any())
    suspects = may_leave_traces(state, mix_rows(rows, 3, 5, 2e-3), inputs, nothing)
    assert suspects.nonzero()[:, 0].tolist() == [5]


def test_the_average_of_two_inputs_is_doubted_if_their_difference_is_in_another_row():
    problem, rows, inputs = made_problem(twins=1, closeness=0.05, is_ratio_shared=True, width=600)
    nothing = torch.zeros(len(rows), len(rows), dtype=torch.bool)
    assert not bool(may_leave_traces(problem, rows, inputs, nothing).any())
    wrong = rows.clone()
    wrong[0] = rows[0] + rows[-1]  # the first input and its twin
    wrong[1] = rows[1] + 5 * (rows[0] - rows[-1])
    wrong[-1] = rows[2] + rows[-1] - rows[0]
    wrong = wrong / wrong.norm(dim=1, keepdim=True)
    read = check_rows(problem, wrong).inputs
    assert bool(may_leave_traces(problem, wrong, read, nothing)[0])
