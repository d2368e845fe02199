"""The row problem: its units, scales and noise are those of the layer's change."""

from dataclasses import replace

import torch

from exhume.attacks.gates.problem import find_hidden
from exhume.clues.clues import clues_of
from tests.attacks.gates.victims import problem_of, random_change, solved_problem


def test_the_change_is_rebuilt_from_rows_and_basis():
    problem, rows, inputs = solved_problem()
    effects = torch.linalg.lstsq(inputs.T, problem.change @ problem.rows).solution
    cosines = torch.cosine_similarity(effects, rows @ problem.rows)
    assert float(cosines.abs().min()) > 1 - 1e-6


def test_normalised_rows_have_unit_mean_square():
    problem, rows, _ = solved_problem()
    full = problem.normalise(rows)
    torch.testing.assert_close(full.pow(2).sum(dim=1) / problem.units, torch.ones(16, dtype=torch.float64))


def test_silent_units_are_those_without_a_change():
    problem = problem_of(random_change()[0])
    assert problem.units == problem.rows.shape[1]
    assert not bool(problem.silent.any())


def test_the_constant_orients_inputs():
    problem, _, inputs = solved_problem()
    torch.testing.assert_close(problem.orient(-inputs), inputs)


def test_the_noise_width_is_the_size_of_entries_that_should_be_zero():
    problem, rows, inputs = solved_problem(512)
    never = torch.maximum(inputs @ problem.before.T, inputs @ problem.after.T) < -0.2
    entries = problem.normalise(rows).abs().where(never & problem.informative.bool(), torch.nan)
    deviation = entries.nanmedian(dim=1).values / 0.6745
    ratio = deviation / problem.noise_width(rows)
    assert float(ratio.max()) < 4
    assert float(ratio.min()) > 0.1


def test_what_lies_beyond_the_rank_above_noise_is_hidden():
    view, effects = random_change()
    subspace = clues_of(view).require_subspace()
    assert find_hidden(subspace) is None
    kept = subspace.rank - 2
    cut = replace(
        subspace,
        rank=kept,
        basis=subspace.basis[:, :kept],
        rows=subspace.rows[:kept],
        strengths=subspace.strengths[:kept],
    )
    hidden = find_hidden(cut)
    assert hidden is not None
    torch.testing.assert_close(hidden @ hidden.T, torch.eye(2, dtype=torch.float64))
    assert float((hidden @ subspace.rows.T).norm(dim=1).min()) > 1 - 1e-6, "they are the directions that were cut"
    assert len(effects) == subspace.rank
