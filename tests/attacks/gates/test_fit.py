"""Fitted inputs: explain the zeros of true rows, and not those of mixtures."""

import torch

from exhume.attacks.gates.exchange import read_codes
from exhume.attacks.gates.fit import count_contradictions, fit_codes, orient_codes, turn_off_zeros
from exhume.attacks.gates.zeros import find_zeros
from tests.attacks.gates.victims import made_problem, random_rows, shared_difference, solved_problem


def test_fitted_inputs_explain_true_rows_and_resemble_the_true_inputs():
    problem, rows, inputs = solved_problem()
    codes = fit_codes(problem, rows)
    shares = count_contradictions(problem, rows, codes) / find_zeros(problem, rows).sum(dim=1)
    assert float(shares.max()) < 0.05
    assert float(torch.cosine_similarity(codes @ problem.basis.T, inputs).min()) > 0.95


def test_without_a_bias_the_zeros_orient_the_input():
    problem, rows, inputs = made_problem(has_bias=False)
    assert float(torch.cosine_similarity(fit_codes(problem, rows) @ problem.basis.T, inputs).min()) > 0.95


def test_the_difference_of_two_rows_with_a_shared_ratio_is_explained_by_no_input():
    problem, rows, _ = made_problem(is_ratio_shared=True)
    row = shared_difference(problem, rows)[None]
    zeros = int(find_zeros(problem, row).sum())
    assert zeros > int(find_zeros(problem, rows).sum(dim=1).min()) - 10, "it is as sparse as a row"
    assert float(count_contradictions(problem, row, fit_codes(problem, row))) > 0.3 * zeros


def test_signs_come_from_the_constant_or_from_the_zeros():
    for has_bias in (True, False):
        problem, rows, inputs = made_problem(has_bias=has_bias)
        codes = inputs @ problem.basis
        torch.testing.assert_close(orient_codes(problem, rows, -codes), codes)
        torch.testing.assert_close(orient_codes(problem, rows, codes), codes)


def test_a_constant_that_is_nearly_zero_does_not_turn_an_input_around():
    problem, rows, inputs = made_problem()
    codes = inputs @ problem.basis
    constant = problem.basis[-1]
    tilted = codes - 1.01 * (codes @ constant)[:, None] * constant / constant.square().sum()
    assert float((tilted @ constant).max()) < 0
    assert bool((turn_off_zeros(problem, rows, tilted) == tilted).all())
    assert bool((orient_codes(problem, rows, tilted) == -tilted).all())


def test_contradictions_against_a_slow_twin():
    problem, rows, _ = made_problem()
    codes = read_codes(problem, random_rows(problem, problem.rank))
    counts = count_contradictions(problem, rows, codes)
    inputs, entries = codes @ problem.basis.T, problem.normalise(rows).abs()
    for index, given in enumerate(inputs):
        against = 0
        for unit in problem.informative.nonzero()[:, 0].tolist():
            ends = float(given @ problem.before[unit]), float(given @ problem.after[unit])
            against += float(entries[index, unit]) <= 1e-3 and max(ends) > 0
        assert float(counts[index]) == against > 0


def test_rows_with_no_zero_or_only_zeros_give_finite_inputs():
    problem, rows, _ = made_problem(count=3, width=40)
    generic = random_rows(problem, 4)
    assert bool(fit_codes(problem, generic).isfinite().all())
    assert fit_codes(problem, rows[:0]).shape == (0, 3)
